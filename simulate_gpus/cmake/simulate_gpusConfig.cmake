include(${CMAKE_CURRENT_LIST_DIR}/simulate_gpusTargets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/simulate_gpus_add_test.cmake)
