# The warnings of this project's own files: an interface target for our targets, never exported.
# LibTorch's headers are system includes and stay silent.
add_library(use_gpu_warnings INTERFACE)
target_compile_options(use_gpu_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  # GCC 12 sees overlapping copies in "text" + std::string where there are none (GCC bug 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<BOOL:${USE_GPU_WARNINGS_AS_ERRORS}>:-Werror>)
