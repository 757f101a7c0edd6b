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
file(STRINGS /proc/cpuinfo has_avx2 REGEX avx2 LIMIT_COUNT 1)
foreach(test ptx ptx.golden)
  simulate_gpus_test(${test} ${${test}})
  if(has_avx2)  # the library for such CPUs takes the other's place
    simulate_gpus_test(${test}.avx2 ${${test}})
    set_property(TEST simulate_gpus.${test}.avx2 APPEND PROPERTY
      ENVIRONMENT_MODIFICATION LD_PRELOAD=set:$<TARGET_FILE:simulate_gpus_ptx_avx2>)
  endif()
endforeach()
add_dependencies(simulate_gpus_ptx_test simulate_gpus_ptx_avx2)
