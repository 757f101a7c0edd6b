// SPDX-License-Identifier: MIT
#include <c10/core/Device.h>
#include <use_gpu/device.hpp>

#include <cstdio>

int main() { std::printf("on %s\n", use_gpu::try_gpu().str().c_str()); }
