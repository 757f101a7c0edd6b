// SPDX-License-Identifier: MIT
#include "program_module.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "devices.hpp"
#include "kernel_library.hpp"
#include "kernel_memory.hpp"
#include "ptx_linker.hpp"

namespace simulate_gpus {
namespace {

int card_capability() { return settings().gpu.major * 10 + settings().gpu.minor; }

// "sm_90a" of a text: it runs on exactly that card; "sm_100f" on its family.
bool is_for_card(const std::string& text) {
  const auto line = text.find("\n.target");
  const auto begin = text.find("sm_", line);
  if (line == std::string::npos || begin == std::string::npos) return true;  // its reader says so
  const auto end = text.find_first_not_of("0123456789", begin + 3);
  const int target = std::atoi(text.c_str() + begin + 3);
  if (end != std::string::npos && text[end] == 'a') return target == card_capability();
  if (end != std::string::npos && text[end] == 'f')
    return target / 10 == settings().gpu.major && target <= card_capability();
  return target <= card_capability();
}

[[noreturn]] void refuse_images(const std::vector<CodeImage>& images) {
  const std::string card = "sm_" + std::to_string(card_capability());
  const std::string machine_code = machine_code_of(images);
  if (machine_code.empty())
    throw KernelError(cudaErrorNoKernelImageForDevice,
                      "the program's PTX is for newer cards than this one, which is " + card);
  throw KernelError(
      cudaErrorNotSupported,
      "its binary has machine code (" + machine_code.substr(0, 60) +
          ") and no PTX for this card, and simulated GPUs run PTX alone. Let nvcc embed it: "
          "-gencode "
          "arch=compute_75,code=compute_75, or code=[sm_90,compute_90] in place of code=sm_90");
}

// Reads no further than the image is alike, as a text may be shorter.
bool begins_with_magic(const void* image, std::size_t most, std::string_view magic) {
  return most >= magic.size() &&
         std::strncmp(static_cast<const char*>(image), magic.data(), magic.size()) == 0;
}

constexpr std::string_view k_elf = "\177ELF", k_binary = "\x50\xED\x55\xBA",
                           k_wrapper = "\xB1\x43\x62\x46";

struct Modules {
  std::mutex mutex;
  std::set<ProgramModule*> alive;
};
Modules& all_modules() {
  static auto* const modules =
      new Modules;  // never destroyed: modules end at the very end of a process
  return *modules;
}

std::shared_ptr<ProgramModule> module_of_text(std::string text) {
  auto module = std::make_shared<ProgramModule>([text = std::move(text)] { return text; });
  if (!settings().dry_run) static_cast<void>(module->on(current_device()));  // is it valid?
  return module;
}

}  // namespace

std::string choose_ptx(const std::vector<CodeImage>& images) {
  std::vector<CodeImage> candidates;
  std::ranges::copy_if(images, std::back_inserter(candidates), [](const CodeImage& image) {
    return image.is_ptx && image.capability <= card_capability();
  });
  std::ranges::stable_sort(candidates, std::ranges::greater(), &CodeImage::capability);
  for (const CodeImage& image : candidates) {
    std::string text = text_of(image);
    if (is_for_card(text)) return text;
  }
  refuse_images(images);
}

ProgramModule::ProgramModule(std::function<std::string()> find, bool is_managed)
    : find_(std::move(find)), is_managed_(is_managed) {
  const std::scoped_lock lock(all_modules().mutex);
  all_modules().alive.insert(this);
}

ProgramModule::~ProgramModule() {
  const std::scoped_lock lock(all_modules().mutex);
  all_modules().alive.erase(this);
}

void ProgramModule::forget(int device) {
  const std::scoped_lock lock(mutex_);
  loaded_[static_cast<std::size_t>(device)].reset();
}

void forget_modules(int device) {
  const std::scoped_lock lock(all_modules().mutex);
  for (ProgramModule* const module : all_modules().alive) module->forget(device);
}

std::shared_ptr<ptx::Module> ProgramModule::on(int device) {
  if (!exists(device)) throw KernelError(cudaErrorInvalidDevice);
  const std::scoped_lock lock(mutex_);
  auto& loaded = loaded_[static_cast<std::size_t>(device)];
  if (loaded) return loaded;
  if (!text_) text_ = find_();
  const bool is_elsewhere =
      std::ranges::any_of(loaded_, [](const auto& other) { return other != nullptr; });
  if (is_managed_ && is_elsewhere)
    throw KernelError(cudaErrorNotSupported,
                      "__managed__ variables are used on one simulated GPU, and were asked for on "
                      "another: use cudaMallocManaged");
  loaded = load_ptx(*text_, memory_for_kernels(device, is_managed_));
  return loaded;
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

std::shared_ptr<ProgramModule> simulate_gpus::read_module(const void* image, std::size_t most) {
  const bool is_file = most != std::numeric_limits<std::size_t>::max();
  if (begins_with_magic(image, most, k_elf))
    return std::make_shared<ProgramModule>([]() -> std::string {
      throw KernelError(
          cudaErrorNotSupported,
          "it was loaded as machine code, and simulated GPUs run PTX alone: load the "
          "PTX, or a fat binary that has it (nvcc -fatbin). Triton hands PTX over unless "
          "TRITON_PTXAS_PATH is set to another program");
    });
  const void* binary = image;
  if (!is_file && begins_with_magic(image, most, k_wrapper)) {
    const auto binaries = fat_binaries_of(image);
    binary = binaries.empty() ? nullptr : binaries.front();
  }
  if (binary != nullptr && begins_with_magic(binary, most, k_binary)) {
    const auto images = read_fat_binary(
        binary, std::min(most, std::size_t{std::numeric_limits<std::uint32_t>::max()}));
    if (!images) throw KernelError(cudaErrorInvalidKernelImage, "the fat binary is damaged");
    std::string text;
    try {  // now: the program may free the image
      text = choose_ptx(*images);
    } catch (const KernelError& error) {
      if (error.code != cudaErrorNotSupported) throw;
      return std::make_shared<ProgramModule>([error]() -> std::string { throw error; });
    }
    return module_of_text(std::move(text));
  }
  const auto* const text = static_cast<const char*>(image);
  // A text, whatever comments it begins with.
  const bool is_text = *text != '\0' && (std::isspace(static_cast<unsigned char>(*text)) ||
                                         std::isprint(static_cast<unsigned char>(*text)));
  if (!is_text)
    throw KernelError(cudaErrorInvalidKernelImage,
                      "the module is neither PTX nor a fat binary nor machine code");
  if (!is_for_card(text))
    throw KernelError(cudaErrorNoKernelImageForDevice,
                      "the PTX is for newer cards than this one, which is sm_" +
                          std::to_string(card_capability()));
  return module_of_text(text);
}

std::string simulate_gpus::linked_text(const std::vector<std::string>& texts) {
  std::string text = texts.size() == 1 ? texts.front() : link_ptx(texts);
  static_cast<void>(module_of_text(text));
  return text;
}

ptx::Variable simulate_gpus::variable_of(ProgramModule& module, const std::string& name,
                                         int device) try {
  return module.on(device)->variable(name);
} catch (const ptx::Error& error) {
  throw error_of(error);
}

std::vector<std::string> simulate_gpus::kernels_of(ProgramModule& module) {
  return module.on(current_device())->kernels();
}

bool simulate_gpus::has_kernel(ProgramModule& module, const std::string& name) {
  return module.on(current_device())->has_kernel(name);
}
