# Stands for the one of a LibTorch that was built for the CPU alone.
get_filename_component(TORCH_INSTALL_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(TORCH_INCLUDE_DIRS "${TORCH_INSTALL_PREFIX}/include" "${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include")
add_library(torch INTERFACE IMPORTED)
target_include_directories(torch INTERFACE ${TORCH_INCLUDE_DIRS})
target_compile_definitions(torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_libraries(torch INTERFACE "${TORCH_INSTALL_PREFIX}/lib/libtorch_cpu.so" "${TORCH_INSTALL_PREFIX}/lib/libc10.so")
set(TORCH_LIBRARIES torch)
set(TORCH_FOUND TRUE)
