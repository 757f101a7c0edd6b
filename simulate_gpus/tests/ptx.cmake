# The PTX engine without CUDA. Included by CMakeLists.txt, after simulate_gpus_test.
foreach(program test golden)
  add_executable(simulate_gpus_ptx_${program} ptx_${program}.cpp)
  target_include_directories(simulate_gpus_ptx_${program} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(simulate_gpus_ptx_${program} PRIVATE
    simulate_gpus_ptx simulate_gpus_warnings GTest::gtest_main)
endforeach()
target_sources(simulate_gpus_ptx_test PRIVATE ptx_faults_test.cpp ptx_random_test.cpp)
set(ptx $<TARGET_FILE:simulate_gpus_ptx_test>)
set(ptx.golden ${python} ${CMAKE_CURRENT_SOURCE_DIR}/ptx_golden.py $<TARGET_FILE:simulate_gpus_ptx_golden>)
# A sanitizer would change the counts, and see the same sources twice.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  simulate_gpus_test(ptx ${ptx})
  simulate_gpus_test(ptx.golden ${ptx.golden})
  return()
endif()

# Needs valgrind with its header.
set(tests ptx ptx.golden)
find_program(SIMULATE_GPUS_VALGRIND valgrind)
find_path(SIMULATE_GPUS_VALGRIND_INCLUDE_DIR valgrind/callgrind.h DOC "The folder of valgrind/callgrind.h")
if(SIMULATE_GPUS_VALGRIND AND SIMULATE_GPUS_VALGRIND_INCLUDE_DIR)
  add_executable(simulate_gpus_ptx_instructions ptx_instructions.cpp)
  target_include_directories(simulate_gpus_ptx_instructions PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(simulate_gpus_ptx_instructions SYSTEM PRIVATE ${SIMULATE_GPUS_VALGRIND_INCLUDE_DIR})
  target_compile_options(simulate_gpus_ptx_instructions PRIVATE -O2)
  target_link_libraries(simulate_gpus_ptx_instructions PRIVATE simulate_gpus_ptx simulate_gpus_warnings)
  set(ptx.instructions ${python} ${CMAKE_CURRENT_SOURCE_DIR}/ptx_instructions.py $<TARGET_FILE:simulate_gpus_ptx_instructions>)
  set(ptx.instructions.avx2_option --avx2)
  list(APPEND tests ptx.instructions)
endif()

file(STRINGS /proc/cpuinfo has_avx2 REGEX avx2 LIMIT_COUNT 1)
foreach(test ${tests})
  simulate_gpus_test(${test} ${${test}})
  if(has_avx2)  # the library for such CPUs takes the other's place
    simulate_gpus_test(${test}.avx2 ${${test}} ${${test}.avx2_option})
    set_property(TEST simulate_gpus.${test}.avx2 APPEND PROPERTY
      ENVIRONMENT_MODIFICATION LD_PRELOAD=set:$<TARGET_FILE:simulate_gpus_ptx_avx2>)
  endif()
endforeach()
add_dependencies(simulate_gpus_ptx_test simulate_gpus_ptx_avx2)
