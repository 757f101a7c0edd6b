# use_gpu_reuse_headers(<target> <source> <from>): compiles the target with the precompiled headers of <from>
# if its source includes large headers of LibTorch, itself or by the tests' fault_actions.hpp. For any other
# source loading them would take longer than compiling.
function(use_gpu_reuse_headers target source from)
  file(STRINGS ${source} large REGEX "#include (<torch/|\"fault_actions)")
  if(large)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()
