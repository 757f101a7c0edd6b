// SPDX-License-Identifier: MIT
#include "runtime/tool.hpp"
#include "tools/check/check.hpp"
#include "tools/faults/faults.hpp"
#include "tools/summary/summary.hpp"
#include "tools/trace/trace.hpp"

// They are told in this order, of the end too: --check decides on the status, and ends the process.
void simulate_gpus::start_tools() {
  start_faults();
  start_trace();
  start_summary();
  start_check();
}
