# use_gpu_reuse_headers(<target> <source> <from>): compiles the target with the precompiled headers of <from>
# if its source includes large headers of LibTorch: loading the others' would take longer.
function(use_gpu_reuse_headers target source from)
  file(STRINGS ${source} large REGEX "#include (<torch/|\"fault_actions)")
  if(large)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()
