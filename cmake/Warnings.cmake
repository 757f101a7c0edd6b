# The warnings of this project's own files: an interface target for our targets, never exported. A project that
# adds this one has its own. LibTorch's headers are system includes and stay silent.
add_library(use_gpu_warnings INTERFACE)
# GCC 12 sees overlapping copies in "text" + std::string where there are none (GCC bug 105651).
target_compile_options(use_gpu_warnings INTERFACE
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  # libstdc++'s own headers call functions that they deprecate.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
if(NOT PROJECT_IS_TOP_LEVEL)
  # In an optimized build GCC sees the counters of an IValue's tensor outside of it: LibTorch's own code, inlined.
  target_compile_options(use_gpu_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
  return()
endif()
target_compile_options(use_gpu_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  $<$<BOOL:${USE_GPU_WARNINGS_AS_ERRORS}>:-Werror>)
