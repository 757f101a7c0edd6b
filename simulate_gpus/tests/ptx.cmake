# The PTX engine without CUDA. Included by CMakeLists.txt, after simulate_gpus_test.
foreach(program test golden)
  add_executable(simulate_gpus_ptx_${program} ptx_${program}.cpp)
  target_include_directories(simulate_gpus_ptx_${program} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(simulate_gpus_ptx_${program} PRIVATE
    simulate_gpus_ptx simulate_gpus_warnings GTest::gtest_main)
endforeach()
target_sources(simulate_gpus_ptx_test PRIVATE ptx_faults_test.cpp ptx_random_test.cpp)
simulate_gpus_test(ptx $<TARGET_FILE:simulate_gpus_ptx_test>)
simulate_gpus_test(ptx.golden ${python} ${CMAKE_CURRENT_SOURCE_DIR}/ptx_golden.py $<TARGET_FILE:simulate_gpus_ptx_golden>)
