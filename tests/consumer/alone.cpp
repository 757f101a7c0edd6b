// SPDX-License-Identifier: MIT
#include <use_gpu/communicator.hpp>

int main() { use_gpu::Communicator::join().barrier(); }
