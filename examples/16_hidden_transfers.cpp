// The chapter's side notes: transfers are slow, "we want you to be 100 % certain that you want to
// do something slow before we let you do it".
// Look at: what printing the loss at each step costs, the guard's error, one large copy against a
// thousand small ones, and which lines caused all this. Without a GPU nothing is transferred, and all
// counts are zero.

#include <torch/nn/modules/linear.h>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <chrono>
#include <iostream>
#include <sstream>

#include "timing/timing.hpp"

namespace {

// A hundred steps of a training loop, which prints its loss at each step or once, at the end.
void train(c10::Device device, bool print_each_step) {
  torch::nn::Linear net(3, 1);
  use_gpu::place(net, device);
  const torch::Tensor X = torch::ones({8, 3}, device);
  std::ostringstream log;
  for (int step = 1; step <= 100; ++step) {
    const torch::Tensor loss = net->forward(X).square().mean();
    loss.backward();
    if (print_each_step) log << loss.item<float>() << '\n';
    if (step == 100) log << use_gpu::show(loss.detach());
  }
}

void copy_in_pieces(const torch::Tensor& x, int count) {
  const use_gpu::TransferLedger ledger;
  const auto start = std::chrono::steady_clock::now();
  for (const torch::Tensor& piece : x.chunk(count)) (void)use_gpu::to_device(piece, use_gpu::cpu());
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  const auto [copies, bytes] = ledger.count(use_gpu::TransferDirection::device_to_host);
  std::cout << "Pieces: " << count << ", copies: " << copies << ", bytes: " << bytes;
  if (x.is_cuda() && !is_simulated(x.device())) std::cout << ", " << time.count() << " ms";
  std::cout << '\n';
}

}  // namespace

int main() {
  const c10::Device device = use_gpu::try_gpu();
  const use_gpu::TransferLedger all({.call_sites = true});
  for (const bool each_step : {true, false}) {
    const use_gpu::TransferLedger ledger;
    train(device, each_step);
    std::cout << "Loss printed " << (each_step ? "at each step" : "once") << ", on " << device
              << ":\n"
              << ledger << '\n';
  }
  try {
    const use_gpu::TransferGuard guard;
    train(device, /*print_each_step=*/true);
    std::cout << "The guard has nothing to forbid on " << device << ".\n\n";
  } catch (const use_gpu::TransferForbidden& error) {
    std::cout << error.what() << "\n\n";
  }
  const torch::Tensor x = torch::ones({1000, 250}, device);
  (void)use_gpu::copy_to(x, use_gpu::cpu());  // warm-up: the first copy takes longer
  copy_in_pieces(x, 1);
  copy_in_pieces(x, 1000);
  std::cout << "\nIn all:\n" << all;
}
