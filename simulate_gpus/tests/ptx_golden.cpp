// Runs the kernels that ptx_golden.py hands over in a file, and writes what they leave. ptx_golden.py compares it.
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "ptx_memory.hpp"

namespace ptx = simulate_gpus::ptx;

namespace {

class Reader {
 public:
  explicit Reader(const char* path) : file_(path, std::ios::binary) {
    file_.exceptions(std::ios::failbit | std::ios::badbit);
  }
  std::uint32_t number() {
    std::uint32_t value = 0;
    file_.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string text() {
    std::string value(number(), '\0');
    file_.read(value.data(), static_cast<std::streamsize>(value.size()));
    return value;
  }

 private:
  std::ifstream file_;
};

// A result: a length and the bytes of `out`, or a length of zero and why there are none.
void put(std::ofstream& file, const std::string& bytes) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::vector<std::byte> parameters(std::uint64_t in, std::uint64_t out, std::uint32_t lanes) {
  std::vector<std::byte> bytes(20);
  std::memcpy(bytes.data(), &in, 8);
  std::memcpy(bytes.data() + 8, &out, 8);
  std::memcpy(bytes.data() + 16, &lanes, 4);
  return bytes;
}

void run_case(Reader& reader, TestMemory& memory, ptx::Module* module, const std::string& failure,
              std::ofstream& results) {
  ptx::Launch launch;
  launch.kernel = reader.text();
  for (std::uint32_t* const size : {&launch.grid.x, &launch.grid.y, &launch.grid.z, &launch.block.x,
                                    &launch.block.y, &launch.block.z})
    *size = reader.number();
  launch.dynamic_shared_bytes = reader.number();
  const std::uint32_t lanes = reader.number(), result_bytes = reader.number();
  const std::string inputs = reader.text();
  const ptx::Allocation in = memory.allocate(inputs.size() + 4096),
                        out = memory.allocate(result_bytes + 4096);
  std::memcpy(in.host, inputs.data(), inputs.size());
  std::memset(out.host, 0, result_bytes);
  launch.parameters = parameters(in.begin, out.begin, lanes);
  try {
    if (module == nullptr) throw std::runtime_error(failure);
    module->launch(launch);
    put(results, std::string(reinterpret_cast<const char*>(out.host), result_bytes));
  } catch (const std::exception& error) {
    put(results, "");
    put(results, error.what());
  }
  memory.release(in.begin);
  memory.release(out.begin);
}

}  // namespace

int main(int, char** arguments) try {
  Reader reader(arguments[1]);
  std::ofstream results(arguments[2], std::ios::binary);
  TestMemory memory;
  for (std::uint32_t modules = reader.number(); modules > 0; --modules) {
    std::shared_ptr<ptx::Module> module;
    std::string failure;
    try {
      module = memory.load(reader.text());
    } catch (const ptx::Error& error) {
      failure = error.what();
    }
    for (std::uint32_t cases = reader.number(); cases > 0; --cases)
      run_case(reader, memory, module.get(), failure, results);
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
