// SPDX-License-Identifier: MIT
#include <use_gpu/gpu_info.hpp>

#include <iostream>

int main() { std::cout << use_gpu::query_gpus(); }
