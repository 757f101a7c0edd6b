// SPDX-License-Identifier: MIT
#include "cupti/kernel_names.hpp"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/interface.hpp"

namespace simulate_gpus::cupti {
namespace {

// Programs look for these products by the name that their kernels have in all of NVIDIA's libraries.
constexpr std::string_view k_products[] = {
    "aten::addbmm",  "aten::addmm", "aten::_addmm_activation",
    "aten::baddbmm", "aten::bmm",   "aten::linear",
    "aten::matmul",  "aten::mm"};

const char* kept(std::string name) {
  static auto* const mutex = new std::mutex;
  static auto* const names = new std::set<std::string>;
  const std::scoped_lock lock(*mutex);
  return names->insert(std::move(name)).first->c_str();
}

// "ncclDevKernel_AllReduce"; one kernel sends and receives.
std::string name_of_collective(std::string_view name) {
  const bool is_message = name == "Send" || name == "Recv";
  return "ncclDevKernel_" + std::string(is_message ? "SendRecv" : name);
}

}  // namespace

const char* name_of_kernel(const Given& given) {
  if (given.kernel != nullptr) {
    const char* const compiled = compiled_name(given.kernel);
    return compiled ? kept(compiled) : "(unknown)";  // its library may be closed
  }
  if (given.kind == Kind::collective) return kept(name_of_collective(given.name) + " (simulated)");
  std::string name(given.name);
  if (name.find("::") == std::string::npos)
    return kept(std::move(name));  // a kernel of the program
  const bool is_product = std::ranges::find(k_products, name) != std::end(k_products);
  return kept(name + (is_product ? " gemm (simulated)" : " (simulated)"));
}

}  // namespace simulate_gpus::cupti
