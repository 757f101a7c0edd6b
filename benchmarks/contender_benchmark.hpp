// SPDX-License-Identifier: MIT
//
// Contenders (see timing/timing.hpp) as Google Benchmarks: warmed up, synchronized, and checked
// before and after the clock runs; one whose result is wrong shows no figure and fails the program.
#pragma once

#include <functional>
#include <string>

#include "timing/timing.hpp"

/// What one run of a contender does, for a rate beside its time.
struct Amount {
  double operations = 0, bytes = 0;
};

/// Makes one benchmark, whose contender is made when its turn comes: not all fit into memory at
/// once.
void add_benchmark(const std::string& name, std::function<Contender()> make, Amount amount = {});

/// To be returned by main(), after all were added. The output names the machine, and warns if
/// LibTorch leaves cores idle or has no fast BLAS. Returns 1 if a result was wrong.
int run_benchmarks(int argc, char** argv);
