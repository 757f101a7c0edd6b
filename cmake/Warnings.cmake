# The warnings of this project's own files: an interface target for our targets, never exported.
# LibTorch's headers are system includes and stay silent.
add_library(use_gpu_warnings INTERFACE)
target_compile_options(use_gpu_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  $<$<BOOL:${USE_GPU_WARNINGS_AS_ERRORS}>:-Werror>)
