// Forms with .approx and .full.
#pragma once

namespace simulate_gpus::ptx {

class Lowering;
void lower_approximation(Lowering& lowering);

}  // namespace simulate_gpus::ptx
