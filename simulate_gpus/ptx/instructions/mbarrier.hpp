// Barriers in shared memory.
#pragma once

namespace simulate_gpus::ptx {

class Lowering;

// cp.async.mbarrier.arrive: the copies are done already, so that it arrives at once.
void lower_mbarrier_arrival_of_copies(Lowering& lowering);

}  // namespace simulate_gpus::ptx
