# Runs one of the chapter's programs as a test: its exit status must be 0, or STATUS, and its output the
# expected one; there <...> stands for anything on one line, <any lines> for anything.
#   cmake -DPROGRAM=<path> -DEXPECTED=<file> [-DARGUMENTS=<list>] [-DSTATUS=<number>]
#         [-DPRELOAD=<library>] -P RunProgram.cmake
# On real GPUs, where the output is the machine's own, only the exit status counts; skipped without one:
#   cmake -DPROGRAM=<path> -DCOUNT_GPUS=<path of 03_num_gpus> -P RunProgram.cmake
if(COUNT_GPUS)
  execute_process(COMMAND "${COUNT_GPUS}" OUTPUT_VARIABLE count)
  if(count MATCHES "^num_gpus\\(\\)  0")
    message("SKIPPED: needs a real GPU, found 0")
    return()
  endif()
endif()
if(NOT DEFINED STATUS)
  set(STATUS 0)
endif()
if(PRELOAD)  # after what this program was preloaded with
  set(ENV{LD_PRELOAD} "$ENV{LD_PRELOAD}:${PRELOAD}")
endif()
execute_process(COMMAND "${PROGRAM}" ${ARGUMENTS} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
if(EXPECTED)
  file(READ "${EXPECTED}" expected)
endif()
string(REGEX REPLACE "([][+.*()^$?|\\\\])" "\\\\\\1" pattern "${expected}")
string(REPLACE "<\\.\\.\\.>" "[^\n]*" pattern "${pattern}")
string(REPLACE "<any lines>" ".+" pattern "${pattern}")
if(NOT status EQUAL STATUS)
  message(FATAL_ERROR "exit status ${status}; it printed:\n${output}")
endif()
if(EXPECTED AND NOT output MATCHES "^${pattern}$")
  message(FATAL_ERROR "expected (${EXPECTED}):\n${expected}\nbut it printed:\n${output}")
endif()
message("${output}")
