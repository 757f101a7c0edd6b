// A module: its text, its variables in device memory, and its kernels, lowered once each.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "ptx/execution/launch.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/ptx.hpp"
#include "ptx/reader/reader.hpp"

namespace simulate_gpus::ptx {
namespace {

constexpr std::size_t variable_alignment = 256;
constexpr std::uint32_t most_threads = 1024, most_depth = 64, most_rows = 65535;
constexpr std::size_t most_shared_bytes = 232'448;

bool is_in_device_memory(const VariableDeclaration& variable) {
  return !variable.is_extern &&
         (variable.space == Space::global || variable.space == Space::constant);
}

std::uint64_t volume(const Dimensions& size) { return std::uint64_t{size.x} * size.y * size.z; }

class LoadedModule final : public Module {
 public:
  LoadedModule(std::string_view text, const Host& host) : host_(host), source_(read_ptx(text)) {
    try {
      place(Space::global, globals_);
      place(Space::constant, constants_);
      for (const auto& [name, variable] : source_.variables)
        if (is_in_device_memory(variable)) initialize(variable);
    } catch (...) {
      release();
      throw;
    }
  }
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;
  ~LoadedModule() override { release(); }

  std::vector<std::string> kernels() const override {
    std::vector<std::string> names;
    for (const auto& [name, function] : source_.functions)
      if (function.is_entry && function.has_body) names.push_back(name);
    return names;
  }

  bool has_kernel(const std::string& kernel) const override {
    const auto found = source_.functions.find(kernel);
    return found != source_.functions.end() && found->second.is_entry && found->second.has_body;
  }

  std::vector<std::pair<std::string, Variable>> variables() const override {
    std::vector<std::pair<std::string, Variable>> list;
    for (const auto& [name, address] : addresses_) list.emplace_back(name, variable(name));
    return list;
  }

  Variable variable(const std::string& name) const override {
    const auto address = addresses_.find(name);
    if (address == addresses_.end())
      throw Error(Kind::not_found, "the module has no variable " + name.substr(0, 200));
    const VariableDeclaration& declared = source_.variables.at(name);
    return {address->second, declared.bytes, declared.space == Space::constant};
  }

  Attributes attributes(const std::string& kernel) override {
    const Program& program = lowered(kernel);
    const Function& function = source_.functions.at(kernel);
    Attributes found;
    found.parameters = program.parameters;
    found.parameter_bytes = program.parameter_bytes;
    found.static_shared_bytes = program.shared_bytes;
    found.constant_bytes = constants_.end - constants_.begin;
    for (const VariableDeclaration& each : function.variables)
      if (each.space == Space::local) found.local_bytes += each.bytes;
    if (function.max_threads != 0) found.max_threads = function.max_threads;
    std::ranges::copy(function.required_threads, found.required_threads);
    found.registers = std::clamp<std::uint32_t>(program.register_count / 4, 8, 255);
    found.ptx_version = source_.version;
    found.target = source_.target;
    return found;
  }

  void resolve(const std::string& kernel) override { lowered(kernel); }

  void launch(const Launch& request) override {
    const Program& program = lowered(request.kernel);
    check(request, program);
    Launch checked = request;
    checked.parameters.resize(program.parameter_bytes);
    LaunchState state{program,       checked,
                      host_,         constants_,
                      source_.files, program.shared_bytes + request.dynamic_shared_bytes};
    const Allocation workspace =
        request.cooperative && host_.allocate ? host_.allocate(variable_alignment) : Allocation{};
    if (workspace.host != nullptr) std::memset(workspace.host, 0, variable_alignment);
    state.workspace = workspace.begin;
    try {
      run_launch(state);
    } catch (...) {
      if (workspace.begin != 0) host_.release(workspace.begin);
      report_touched(state);
      throw;
    }
    if (workspace.begin != 0) host_.release(workspace.begin);
    report_touched(state);
  }

 private:
  // All variables of a memory are in one allocation.
  void place(Space space, Allocation& memory) {
    std::size_t bytes = 0;
    std::map<std::string, std::size_t> offsets;
    for (const auto& [name, variable] : source_.variables) {
      if (!is_in_device_memory(variable) || variable.space != space) continue;
      const std::size_t usual =
          space == Space::constant
              ? 1
              : std::min(variable_alignment,
                         std::bit_ceil(std::max<std::size_t>(variable.bytes, 1)));
      const std::size_t alignment = std::max(variable.alignment, usual);
      if (alignment > variable_alignment)
        throw Error(Kind::not_offered, "the variable " + name.substr(0, 100) + " is aligned to " +
                                           std::to_string(alignment) + " bytes; 256 are offered");
      bytes = (bytes + alignment - 1) / alignment * alignment;
      offsets[name] = bytes;
      bytes += std::max<std::size_t>(variable.bytes, 1);
    }
    if (bytes == 0) return;
    if (space == Space::constant && bytes > 65536)
      throw Error(Kind::invalid_ptx, "the module has " + std::to_string(bytes) +
                                         " bytes of constants; GPUs have 65536");
    memory = host_.allocate(bytes);
    if (memory.host == nullptr)
      throw Error(Kind::out_of_memory, "the variables of a module need " + std::to_string(bytes) +
                                           " bytes of device memory");
    std::memset(memory.host, 0, bytes);
    for (const auto& [name, offset] : offsets) addresses_[name] = memory.begin + offset;
  }

  std::byte* host_place(const VariableDeclaration& variable) const {
    const Allocation& memory = variable.space == Space::constant ? constants_ : globals_;
    return memory.host + (addresses_.at(variable.name) - memory.begin);
  }

  void initialize(const VariableDeclaration& variable) {
    std::byte* const place = host_place(variable);
    if (!variable.initial.empty())
      std::memcpy(place, variable.initial.data(), variable.initial.size());
    for (const VariableDeclaration::Reference& reference : variable.references) {
      const auto found = addresses_.find(reference.name);
      if (found == addresses_.end()) {
        // A table of functions: whoever calls one by its pointer is refused, the others need not know.
        if (source_.functions.contains(reference.name)) continue;
        throw Error(Kind::not_found,
                    "PTX line " + std::to_string(variable.line) + ": " +
                        variable.name.substr(0, 100) + " begins with the address of " +
                        reference.name.substr(0, 100) + ", which is no variable of the module");
      }
      const std::uint64_t address = found->second + static_cast<std::uint64_t>(reference.added);
      std::memcpy(place + reference.offset, &address, sizeof address);
    }
  }

  void release() {
    for (const Allocation* memory : {&globals_, &constants_})
      if (memory->begin != 0 && host_.release) host_.release(memory->begin);
  }

  const Program& lowered(const std::string& kernel) {
    const std::scoped_lock lock(mutex_);
    const auto found = programs_.find(kernel);
    if (found != programs_.end()) return *found->second;
    if (!has_kernel(kernel))
      throw Error(Kind::not_found, "the module has no kernel " + kernel.substr(0, 200));
    auto program = std::make_unique<Program>(lower_kernel(source_, addresses_, kernel));
    return *programs_.emplace(kernel, std::move(program)).first->second;
  }

  void check(const Launch& request, const Program& program) const {
    const Function& function = source_.functions.at(request.kernel);
    const auto refuse = [&](const std::string& why) {
      throw Error(Kind::invalid_value, "kernel " + request.kernel.substr(0, 100) + ": " + why);
    };
    const std::uint32_t most = function.max_threads != 0 ? function.max_threads : most_threads;
    if (volume(request.grid) == 0 || volume(request.block) == 0)
      refuse("a grid or a block without threads");
    if (request.grid.x > 0x7FFFFFFF || request.grid.y > most_rows || request.grid.z > most_rows)
      refuse("a grid that is too large");
    if (request.block.x > most_threads || request.block.y > most_threads ||
        request.block.z > most_depth || volume(request.block) > most)
      refuse("a block of " + std::to_string(volume(request.block)) + " threads; it may have " +
             std::to_string(most));
    if (program.shared_bytes + request.dynamic_shared_bytes > most_shared_bytes)
      refuse("more shared memory than a block has");
    if (request.parameters.size() < program.parameter_bytes)
      refuse(std::to_string(request.parameters.size()) + " bytes of parameters; it has " +
             std::to_string(program.parameter_bytes));
    const std::uint32_t* const required = function.required_threads;
    if (required[0] != 0 && (required[0] != request.block.x || required[1] != request.block.y ||
                             required[2] != request.block.z))
      refuse("a block of another size than .reqntid asks for");
  }

  static void report_touched(const LaunchState& state) {
    if (state.request.touched == nullptr) return;
    for (const auto& [begin, range] : state.touched)
      state.request.touched->push_back({range.begin, range.end, range.read, range.written});
  }

  Host host_;
  Source source_;
  Addresses addresses_ = {};
  Allocation globals_ = {}, constants_ = {};
  std::mutex mutex_ = {};
  std::map<std::string, std::unique_ptr<Program>> programs_ = {};
};

}  // namespace

std::shared_ptr<Module> load(std::string_view text, const Host& host) {
  return std::make_shared<LoadedModule>(text, host);
}

}  // namespace simulate_gpus::ptx

simulate_gpus::ptx::Module* simulate_gpus_ptx_load(const char* text, std::size_t bytes,
                                                   const simulate_gpus::ptx::Host& host) {
  return new simulate_gpus::ptx::LoadedModule(std::string_view(text, bytes), host);
}
