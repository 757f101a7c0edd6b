// The chapter's side notes: transfers are slow, "we want you to be 100 % certain that you want to
// do something slow before we let you do it".
// Look at: what reading the loss at each step costs, the guard's error, one large copy against a
// thousand small ones, and which lines caused all this. Without a GPU nothing is transferred, and all
// counts are zero.

#include <torch/nn/modules/linear.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <iostream>

// A hundred steps of a training loop, which needs its loss on the host at each step or once, at the end.
void train(c10::Device device, bool at_each_step) {
  torch::nn::Linear net(3, 1);
  use_gpu::place(net, device);
  const torch::Tensor X = torch::ones({8, 3}, device);
  for (int step = 1; step <= 100; ++step) {
    const torch::Tensor loss = net->forward(X).square().mean();
    loss.backward();
    if (at_each_step || step == 100) (void)loss.item<float>();
  }
}

int main() {
  const c10::Device device = use_gpu::try_gpu();
  const use_gpu::TransferLedger all({.call_sites = true});
  for (const bool at_each_step : {true, false}) {
    const use_gpu::TransferLedger ledger;
    train(device, at_each_step);
    std::cout << "Read " << (at_each_step ? "at each step:\n" : "once:\n") << ledger << '\n';
  }
  try {
    const use_gpu::TransferGuard guard;
    train(device, /*at_each_step=*/true);
    std::cout << "The guard has nothing to forbid on " << device << ".\n\n";
  } catch (const use_gpu::TransferForbidden& error) {
    std::cout << error.what() << "\n\n";
  }
  for (const int pieces : {1, 1000}) {
    const use_gpu::TransferLedger ledger;
    for (const auto& piece : torch::ones({1000, 250}, device).chunk(pieces))
      (void)use_gpu::to_device(piece, use_gpu::cpu());
    const auto sent = ledger.count(use_gpu::TransferDirection::device_to_host);
    std::cout << pieces << " pieces: " << sent.copies << " copies, " << sent.bytes << " bytes\n";
  }
  std::cout << "\nIn all:\n" << all;
}
