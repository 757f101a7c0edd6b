// SPDX-License-Identifier: MIT
#pragma once

namespace simulate_gpus {

struct ErrorText {
  int code;
  const char *name, *text;
};

/// Null for what is no error of CUDA.
const ErrorText* find_text(int code);

}  // namespace simulate_gpus
