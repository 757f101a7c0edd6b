# What the scripts of these tests share. BUILD and SOURCE are the project's folders.

# run(<command>): stops unless its exit status is 0; what it printed is in ${output}.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGV}\nexit status ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# write_snippet(<language> <file>): the README's first text in that language becomes a file.
function(write_snippet language file)
  file(READ "${SOURCE}/README.md" readme)
  if(NOT readme MATCHES "\n```${language}\n([^`]*)```\n")
    message(FATAL_ERROR "README.md has no text in ${language}")
  endif()
  file(WRITE "${file}" "${CMAKE_MATCH_1}")
endfunction()

# ${same_libtorch}: the options by which another build finds LibTorch and CUDA where this one did.
file(STRINGS "${BUILD}/CMakeCache.txt" same_libtorch
     REGEX "^(Torch_DIR|CUDAToolkit_ROOT|CUDA_TOOLKIT_ROOT_DIR|CMAKE_CUDA_COMPILER|USE_GPU_NVML_INCLUDE_DIR):")
list(TRANSFORM same_libtorch PREPEND -D)
