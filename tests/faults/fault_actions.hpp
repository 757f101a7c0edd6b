// SPDX-License-Identifier: MIT
//
// The actions that the fault tests repeat with one fault after another: every function of the
// library that can fail, each on its own World, which detects changes.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <use_gpu/default_device.hpp>
#include <use_gpu/diagnosis.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/memory.hpp>
#include <use_gpu/metric_log.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/parameter_file.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/replicas.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/tensor_file.hpp>
#include <use_gpu/transfers.hpp>

#include <fstream>
#include <numeric>
#include <span>
#include <sstream>

#include "scratch_folder.hpp"
#include "support.hpp"

namespace use_gpu::test {

inline c10::Device first_device() { return try_gpu(); }
inline c10::Device other_device() { return num_gpus() > 1 ? gpu(1) : cpu(); }

constexpr int k_small = 2;  // more parameters: with their gradients, enough to travel together

// Two dtypes, a tensor that is not contiguous, a frozen one, an empty one, gradients, and a buffer.
struct Net : torch::nn::Module {
  explicit Net(double value) {
    const auto add = [&](const std::string& name, const at::Tensor& x, bool is_trained) {
      auto& parameter = register_parameter(name, x.fill_(value), is_trained);
      if (is_trained) parameter.mutable_grad() = at::full_like(parameter, value);
    };
    add("weight", at::empty({3, 2}).t(), true);
    add("bias", at::empty({3}), true);
    add("factor", at::empty({2}, at::kDouble), true);
    for (int i = 0; i < k_small; ++i) add("small" + std::to_string(i), at::empty({i}), true);
    add("frozen", at::empty({1}), false);
    register_buffer("count", at::full({}, static_cast<std::int64_t>(value), at::kLong));
  }
  [[nodiscard]] std::vector<at::Tensor> tensors() const {
    auto all = parameters();
    for (const auto& x : parameters()) all.push_back(x.grad());
    for (const auto& x : buffers()) all.push_back(x);
    return all;
  }
};

/// The bytes of files, by their names.
using Files = std::map<std::string, std::string>;

// What an action writes in place, of which a write may fail half-way: values that it is given, so
// that it can be repeated, or means of those that it finds.
enum class Writes { nothing, values, means };

// All that an action is given. Made anew for each.
struct World {
  explicit World(const Files& files, int pushed = 0) : log(first_device(), 2) {
    place(net, first_device());
    place(peer, other_device());
    for (const auto& [name, bytes] : files) std::ofstream(folder / name, std::ios::binary) << bytes;
    for (int i = 1; i <= pushed; ++i) push();
    for (const auto* of : {&net, &peer}) {
      for (const auto& tensor : (*of)->tensors()) add(tensor);
    }
    add(x);
    add(y);
  }

  struct Before {
    const void *address, *storage;
  };
  void add(const at::Tensor& tensor) {
    tensors.push_back({address_of(tensor), storage_of(tensor)});
  }

  static const void* address_of(const at::Tensor& x) { return x.unsafeGetTensorImpl(); }
  static const void* storage_of(const at::Tensor& x) {
    return x.defined() ? x.storage().data() : nullptr;
  }
  void push() { log.push(torch::full({}, static_cast<double>(log.size() + 1), first_device())); }

  // All that could have changed, as a text; without the values that were to be written, if so asked.
  [[nodiscard]] std::string state(Writes without = Writes::nothing) const {
    std::ostringstream text;
    std::size_t i = 0;
    const auto show_next = [&](const at::Tensor& now, bool with_values = true) {
      const auto& [address, storage] = tensors.at(i);
      text << i++ << (address_of(now) == address ? " itself " : " another ")
           << (storage_of(now) == storage ? "in place " : "moved ");
      if (now.defined()) text << describe(now) << (now.requires_grad() ? " trained" : "");
      if (now.defined() && with_values) {
        const auto values = now.detach().cpu().to(at::kDouble).flatten();
        for (const double value : std::span(static_cast<const double*>(values.const_data_ptr()),
                                            static_cast<std::size_t>(values.numel())))
          text << ' ' << value;
      }
      text << '\n';
    };
    for (const auto& now : net->tensors()) show_next(now, without == Writes::nothing);
    for (const auto& now : peer->tensors()) show_next(now, without != Writes::means);
    show_next(x);
    show_next(y);
    for (const auto& entry : std::filesystem::directory_iterator(folder / ".")) {
      std::ifstream file(entry.path(), std::ios::binary);
      text << std::string_view(entry.path().c_str()).substr((folder / "").string().size()) << ": "
           << std::string(std::istreambuf_iterator<char>(file), {}) << '\n';
    }
    text << "pushed " << log.size() << ", current " << current_gpu().value_or(cpu())
         << ", grad mode " << at::GradMode::is_enabled() << ", inference mode "
         << c10::InferenceMode::is_enabled() << ", key "
         << c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::DeferredInit) << ", scope "
         << (c10::ThreadLocalDebugInfo::current() == scope ? "the same" : "another");
    return text.str();
  }

  // The log's numbers are 1, 2, 3 ... Reading them takes the full blocks to the host.
  [[nodiscard]] bool has_kept_the_numbers() {
    std::vector<double> expected(static_cast<std::size_t>(log.size()));
    std::iota(expected.begin(), expected.end(), 1);
    return log.values() == expected;
  }

  ScratchFolder folder{folder_in_memory()};
  std::shared_ptr<Net> net = std::make_shared<Net>(1);
  std::shared_ptr<Net> peer = std::make_shared<Net>(3);
  at::Tensor x = torch::ones({2, 3}, first_device());
  at::Tensor y = torch::ones({2, 3}, other_device());
  MetricLog log;
  std::vector<Before> tensors;
  std::shared_ptr<c10::ThreadLocalDebugInfo> scope = c10::ThreadLocalDebugInfo::current();
};

struct Action {
  const char* name;
  std::function<void(World&)> run;
  int pushed = 0;  // before it
  bool allocates = true;
  Writes writes = Writes::nothing;
};

// On a GPU most pushes allocate nothing; a guard's scope does.
inline void push_guarded(World& world) {
  const TransferGuard guard;
  world.push();
}

inline const Action k_actions[] = {
    {"num_gpus", [](World&) { EXPECT_GE(num_gpus(), 0); }, 0, false},
    {"try_gpu, logged", [](World&) { static_cast<void>(try_gpu(127)); }},
    {"try_all_gpus", [](World&) { static_cast<void>(try_all_gpus()); }},
    {"parse_device", [](World&) { static_cast<void>(parse_device("cuda:0")); }, 0, false},
    {"parse_device, refused", [](World&) { static_cast<void>(parse_device("a\tdevice")); }},
    {"memory_report",
     [](World&) {
       std::ostringstream text;
       text << memory_report(other_device());
     }},
    {"try_emptiest_gpu", [](World&) { static_cast<void>(try_emptiest_gpu()); }},
    {"fit_batch_size",
     [](World&) {
       fit_batch_size(2, [](std::int64_t size) {
         TORCH_CHECK_WITH(OutOfMemoryError, size == 1, "there is none");
       });
     }},
    {"explain_gpus", [](World&) { static_cast<void>(explain_gpus()); }},
    {"checked_add", [](World& w) { static_cast<void>(checked_add(w.x, w.x)); }, 0, false},
    {"checked_add, refused", [](World& w) { static_cast<void>(checked_add(w.x, w.x.to("meta"))); }},
    {"check_same_device, refused",
     [](World& w) {
       check_same_device("f", {{"x", w.x}, {"y", w.y.to("meta")}});
     }},
    {"to_device", [](World& w) { static_cast<void>(to_device(w.x, other_device())); }, 0, false},
    {"to_device, guarded",
     [](World& w) {
       const TransferGuard guard;
       static_cast<void>(to_device(w.x, other_device()));
     }},
    {"to_device, refused", [](World& w) { static_cast<void>(to_device(w.x, absent_gpu())); }},
    {"copy_to", [](World& w) { static_cast<void>(copy_to(w.x, other_device())); }, 0, false},
    {"describe", [](World& w) { static_cast<void>(describe(w.x)); }},
    {"show",
     [](World& w) {
       std::ostringstream text;
       text << show(w.x);
     }},
    {"place", [](World& w) { place(w.net, other_device()); }},
    {"place, nothing registered",
     [](World&) { place(std::make_shared<torch::nn::Module>("Empty"), other_device()); }},
    {"placement",
     [](World& w) {
       std::ostringstream text;
       text << placement(w.net);
     }},
    {"read_parameters", [](World& w) { static_cast<void>(read_parameters(w.net)); }},
    {"write_parameters",
     [](World& w) {
       std::map<std::string, at::Tensor> values{{"weight", torch::full({2, 3}, 5.0)},
                                                {"bias", torch::full({3}, 5.0)},
                                                {"factor", torch::full({2}, 5.0, at::kDouble)}};
       for (int i = 0; i < k_small; ++i)
         values.emplace("small" + std::to_string(i), torch::full({i}, 5.0));
       write_parameters(w.net, values);
     },
     0, true, Writes::values},
    {"write_parameters, refused",
     [](World& w) {
       write_parameters(w.net, {{"weight", w.x}, {"wait", w.x}});
     }},
    {"write_parameters, from another network",
     [](World& w) {
       write_parameters(w.net, {{"weight", w.peer->parameters()[0].detach()}});
     },
     0, true, Writes::values},
    {"save_parameters", [](World& w) { save_parameters(w.net, w.folder / "net"); }},
    {"save_parameters, refused",
     [](World& w) { save_parameters(w.net, w.folder / "none" / "net"); }},
    {"load_parameters", [](World& w) { load_parameters(w.net, w.folder / "net"); }, 0, true,
     Writes::values},
    {"load_parameters, refused", [](World& w) { load_parameters(w.net, w.folder / "none"); }},
    {"load_parameters, renamed and converted",
     [](World& w) {
       load_parameters(w.net, w.folder / "sharded.json",
                       {.rename = [](const std::string& name) { return name.substr(1); },
                        .allow_missing = true,
                        .allow_unexpected = true,
                        .convert_dtype = true});
     },
     0, true, Writes::values},
    {"load_tensors",
     [](World& w) {
       const auto tensors = load_tensors(w.folder / "net", other_device());
       EXPECT_EQ(tensors.at("bias").sum().item<double>(), 27);
     }},
    {"load_tensors, sharded",
     [](World& w) {
       EXPECT_EQ(load_tensors(w.folder / "sharded.json", first_device()).size(), 4U);
     }},
    {"load_tensors, refused",
     [](World& w) { static_cast<void>(load_tensors(w.folder / "wrong.json")); }},
    {"save_tensors",
     [](World& w) {
       save_tensors({{"x", w.x}, {"y", w.y}}, w.folder / "net");
     }},
    {"save_tensors, refused",
     [](World& w) {
       save_tensors({{"x", at::Tensor()}}, w.folder / "net");
     }},
    {"MetricLog", [](World&) { MetricLog(other_device(), 2).push(torch::ones({})); }},
    {"MetricLog, refused", [](World& w) { w.log.push(torch::ones({2}, first_device())); }},
    {"MetricLog::push, number 1", push_guarded, 0},
    {"MetricLog::push, number 2", push_guarded, 1},
    {"MetricLog::push, number 6", push_guarded, 5},
    {"MetricLog::values", [](World& w) { EXPECT_TRUE(w.has_kept_the_numbers()); }, 5},
    {"TransferLedger",
     [](World& w) {
       const TransferLedger ledger;
       static_cast<void>(w.x.cpu());
       std::ostringstream text;
       text << ledger;
     }},
    {"TransferGuard, logging",
     [](World& w) {
       const TransferGuard guard({OnTransfer::log, OnTransfer::log, OnTransfer::log});
       static_cast<void>(w.x.sum().item());
       static_cast<void>(w.x.to(other_device()));
     }},
    {"TransferGuard, forbidding",
     [](World& w) {
       const TransferGuard guard;
       const AllowTransfers certain;
       const TransferGuard again;
       static_cast<void>(w.x.cpu());
     }},
    {"DefaultDeviceGuard",
     [](World&) {
       const DefaultDeviceGuard scope(other_device());
       static_cast<void>(torch::ones({2}));
     }},
    {"parallel_on",
     [](World&) {
       parallel_on({first_device(), other_device()},
                   [](c10::Device device, int) { static_cast<void>(torch::ones({2}, device)); });
     }},
    {"parallel_on, failing",
     [](World&) {
       parallel_on({first_device(), other_device()},
                   [](c10::Device, int) { throw ArgumentError("not today"); });
     }},
    {"mirror",
     [](World& w) {
       bool first = true;
       static_cast<void>(mirror({first_device(), other_device()}, [&] {
         return std::exchange(first, false) ? w.net : std::make_shared<Net>(7);
       }));
     }},
    {"mirror, moving the first",
     [](World& w) {
       bool first = true;
       static_cast<void>(mirror({other_device(), first_device()}, [&] {
         return std::exchange(first, false) ? w.net : std::make_shared<Net>(7);
       }));
     }},
    {"average_gradients",
     [](World& w) {
       average_gradients(std::vector<std::shared_ptr<Net>>{w.net, w.peer});
     },
     0, true, Writes::means},
};

inline void PrintTo(const Action& action, std::ostream* out) { *out << action.name; }

// What an action came to: nothing, or the type of its error.
inline std::string outcome_of(const Action& action, World& world) {
  try {
    action.run(world);
    return "no error";
  } catch (const std::exception& error) {
    return typeid(error).name();
  }
}

/// "net", which the networks of a world can load; "sharded.json", with other names and dtypes; and
/// "wrong.json", an index that is refused.
inline Files saved_files() {
  const ScratchFolder folder(folder_in_memory());
  save_parameters(std::make_shared<Net>(9), folder / "net");
  const auto halves = [](at::IntArrayRef shape) { return torch::full(shape, 7.0, at::kHalf); };
  save_tensors({{"_weight", halves({2, 3})}, {"_bias", halves({3})}}, folder / "1");
  save_tensors({{"_factor", halves({2})}, {"_extra", halves({2})}}, folder / "2");
  Files files{
      {"sharded.json", R"({"weight_map":{"_weight":"1","_bias":"1","_factor":"2","_extra":"2"}})"},
      {"wrong.json", R"({"weight_map":{"weight":"../net"}})"}};
  for (const char* name : {"net", "1", "2"}) {
    std::ifstream bytes(folder / name, std::ios::binary);
    files.emplace(name, std::string(std::istreambuf_iterator<char>(bytes), {}));
  }
  return files;
}

/// The action's name as that of a test.
inline std::string test_name(const testing::TestParamInfo<Action>& action) {
  std::string name = action.param.name;
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return name;
}

}  // namespace use_gpu::test
