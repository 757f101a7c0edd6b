#include "ptx/instructions/memory_modifiers.hpp"

#include "ptx/lowering/lowering.hpp"

namespace simulate_gpus::ptx {

Space take_space(Lowering& lowering) {
  if (lowering.take("global")) return Space::global;
  if (lowering.take("shared") || lowering.take("shared::cta")) return Space::shared;
  if (lowering.take("local")) return Space::local;
  if (lowering.take("const")) return Space::constant;
  if (lowering.take("param") || lowering.take("param::entry") || lowering.take("param::func"))
    return Space::parameter;
  return Space::generic;
}

bool take_order_and_caching(Lowering& lowering) {
  lowering.ignore({"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "seq_cst", "sc",
                   "mmio", "unified"});
  lowering.ignore({"cta", "gpu", "sys", "cluster"});
  lowering.ignore({"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"});
  lowering.ignore({"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
                   "L1::no_allocate"});
  lowering.ignore(
      {"L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::64B", "L2::128B", "L2::256B"});
  return lowering.take("L2::cache_hint");
}

}  // namespace simulate_gpus::ptx
