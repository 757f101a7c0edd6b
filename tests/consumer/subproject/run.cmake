# Builds this folder's project, with the sources of use_gpu in it, and runs the README's program.
#   cmake -DBUILD=<build folder> -DSOURCE=<project folder> -DCOMPILER=<C++ compiler> -DFLAGS=<its flags> -P run.cmake
set(work "${BUILD}/subproject")
file(REMOVE_RECURSE "${work}")
include("${CMAKE_CURRENT_LIST_DIR}/../steps.cmake")
write_snippet(cpp "${work}/main.cpp")

# The project's own warnings are errors, in our files too. Optimized, as GCC then warns of more; and with joined
# sources, which it may have too.
set(warnings "-O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror")
function(configure name)
  run(${CMAKE_COMMAND} -G Ninja -S "${CMAKE_CURRENT_LIST_DIR}" -B "${work}/${name}" -DCMAKE_CXX_STANDARD=20
      -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=24 -DCMAKE_CUDA_STANDARD=17
      "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS} ${warnings}"
      "-DUSE_GPU_SOURCE=${SOURCE}" "-DPROGRAM=${work}/main.cpp" ${same_libtorch} ${ARGN})
  if(output MATCHES "CMake [A-Za-z ]*(Warning|Error)[^\n]*${SOURCE}/(CMakeLists|src|cmake)[^\n]*")
    message(FATAL_ERROR "${CMAKE_MATCH_0}\n${output}")
  endif()
endfunction()
configure(without_own_libtorch -DFIND_TORCH=OFF)
configure(build)
run(${CMAKE_COMMAND} --build "${work}/build" --target app)
run("${BUILD}/simulate_gpus/bin/simulate_gpus" 2 "${work}/build/app")
if(NOT output MATCHES "on cuda:0")
  message(FATAL_ERROR "the README's program should have run on cuda:0:\n${output}")
endif()
