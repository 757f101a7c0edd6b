# Runs one of the chapter's programs as a test: its exit status must be 0 and its output the expected
# one; there <...> stands for anything on one line, <any lines> for anything.
#   cmake -DPROGRAM=<path> -DEXPECTED=<file> -P RunProgram.cmake
execute_process(COMMAND "${PROGRAM}" OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
file(READ "${EXPECTED}" expected)
string(REGEX REPLACE "([][+.*()^$?|\\\\])" "\\\\\\1" pattern "${expected}")
string(REPLACE "<\\.\\.\\.>" "[^\n]*" pattern "${pattern}")
string(REPLACE "<any lines>" ".+" pattern "${pattern}")
if(NOT status EQUAL 0)
  message(FATAL_ERROR "exit status ${status}; it printed:\n${output}")
endif()
if(NOT output MATCHES "^${pattern}$")
  message(FATAL_ERROR "expected (${EXPECTED}):\n${expected}\nbut it printed:\n${output}")
endif()
message("${output}")
