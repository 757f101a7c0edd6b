# simulate_gpus_add_test(NAME <name> GPUS <count> COMMAND <command>...): a test that runs on that many GPUs. On real
# ones where the machine has as many, one such test at a time on each; on simulated ones otherwise, and everywhere
# with SIMULATE_GPUS_ALWAYS. With GPUS 0 the command sees none.
include_guard(GLOBAL)

# How many GPUs this machine has; asked once a configuration.
if(SIMULATE_GPUS_ALWAYS)
  set_property(GLOBAL PROPERTY SIMULATE_GPUS_REAL 0)
else()
  execute_process(COMMAND nvidia-smi --list-gpus OUTPUT_VARIABLE listed ERROR_QUIET)
  string(REGEX MATCHALL "GPU [0-9]+:" listed "${listed}")
  list(LENGTH listed count)
  set_property(GLOBAL PROPERTY SIMULATE_GPUS_REAL ${count})
endif()

function(simulate_gpus_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;GPUS" "COMMAND")
  if(NOT arg_NAME OR NOT "${arg_GPUS}" MATCHES "^[0-9]+$" OR NOT arg_COMMAND OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "simulate_gpus_add_test(NAME <name> GPUS <count> COMMAND <command>...) was called with: ${ARGV}")
  endif()
  get_property(real GLOBAL PROPERTY SIMULATE_GPUS_REAL)
  if(arg_GPUS EQUAL 0)
    add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND})
    set_property(TEST ${arg_NAME} PROPERTY ENVIRONMENT CUDA_VISIBLE_DEVICES=)
  elseif(arg_GPUS GREATER real)
    add_test(NAME ${arg_NAME} COMMAND simulate_gpus::simulate_gpus ${arg_GPUS} ${arg_COMMAND})
    set_property(TEST ${arg_NAME} PROPERTY ENVIRONMENT_MODIFICATION CUDA_VISIBLE_DEVICES=unset:)
  else()
    math(EXPR last "${arg_GPUS} - 1")
    foreach(index RANGE ${last})
      list(APPEND locks real_gpu_${index})
      list(APPEND indices ${index})
    endforeach()
    list(JOIN indices "," indices)
    add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND})
    set_tests_properties(${arg_NAME} PROPERTIES
      ENVIRONMENT CUDA_VISIBLE_DEVICES=${indices} RESOURCE_LOCK "${locks}" LABELS gpu)
  endif()
endfunction()
