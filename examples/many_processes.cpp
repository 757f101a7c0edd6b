// Past one machine ("multiple servers"): a network trained by several processes, on one machine or
// on many. Each process has a shard of the data and a GPU of its own; in each backward pass the
// gradients are averaged over all of them, so that all take the same step. Started by torchrun, or
// alone, as a group of one:
//   torchrun --standalone --nproc-per-node 2 --no-python build/release/examples/many_processes
// Look at: with 1 to 8 processes the losses and the parameters are the same, to 1e-6 of their size.
// docs/several_machines.md has the lines for two machines.

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <use_gpu/communicator.hpp>
#include <use_gpu/distributed_data_parallel.hpp>
#include <use_gpu/metric_log.hpp>
#include <use_gpu/network.hpp>

#include <iomanip>
#include <iostream>

int main() {
  auto group = use_gpu::Communicator::join();
  // Every process makes the same 840 rows, y = x w + b with a little noise; rank r of n takes the rows
  // r, r + n, r + 2n ... For n of 1 to 8 the shards are equal, so the mean of their losses is that of all.
  torch::manual_seed(0);
  torch::Tensor x = torch::randn({840, 2});
  torch::Tensor y = x.matmul(torch::tensor({{2.F}, {-3.4F}})) + 4.2 + 0.01 * torch::randn({840, 1});
  const auto shard = [&](const torch::Tensor& all) {
    return all.slice(0, group.rank(), 840 - 840 % group.size(), group.size()).to(group.device());
  };
  x = shard(x), y = shard(y);

  torch::nn::Sequential net(torch::nn::Linear(2, 1));
  use_gpu::place(net, group.device());
  use_gpu::DistributedDataParallel parallel(net, group);  // starts from rank 0's values
  torch::optim::SGD sgd(net->parameters(), /*lr=*/0.1);
  use_gpu::MetricLog log(group.device());
  for (int step = 0; step < 60; ++step) {
    sgd.zero_grad();
    const torch::Tensor loss = (parallel.forward(x) - y).square().mean();
    loss.backward();  // and equal gradients on all ranks
    sgd.step();
    log.push(loss);
  }

  torch::Tensor losses = torch::tensor(log.values(), torch::kDouble);
  group.all_reduce(losses, use_gpu::ReduceOp::mean);
  if (group.rank() > 0) return 0;
  std::cout << "Rank 0 of " << group.size() << " on " << group.device() << '\n'
            << std::fixed << std::setprecision(6);
  for (const int step : {0, 19, 39, 59}) {
    std::cout << "Loss of step " << step + 1 << ": " << losses[step].item<double>() << '\n';
  }
  for (const auto& p : net->named_parameters()) {
    std::cout << p.key() << ':';
    for (const auto& value : p.value().detach().cpu().flatten().unbind())
      std::cout << ' ' << value.item<float>();
    std::cout << '\n';
  }
}
