# Builds the library with a LibTorch that has no CUDA, and runs tests with it. LibTorch's builds for the CPU are not
# on PyPI, so one is put together: the headers, libc10 and libtorch_cpu of the build's LibTorch, and CMake files
# which tell of nothing else.
#   cmake -DBUILD=<build folder> -DSOURCE=<project folder> -DCOMPILER=<C++ compiler> -DFLAGS=<its flags>
#         -DTORCH=<LibTorch's folder> -P run.cmake
set(work "${BUILD}/cpu_only")
file(REMOVE_RECURSE "${work}")
include("${CMAKE_CURRENT_LIST_DIR}/../consumer/steps.cmake")

set(torch "${work}/site-packages/torch")
file(MAKE_DIRECTORY "${torch}/lib")
file(CREATE_LINK "${TORCH}/include" "${torch}/include" SYMBOLIC)
file(CREATE_LINK "${TORCH}/../nvidia" "${torch}/../nvidia" SYMBOLIC)  # libtorch_cpu links CUDA's profiler
foreach(library libc10.so libtorch_cpu.so libgomp.so.1)
  file(CREATE_LINK "${TORCH}/lib/${library}" "${torch}/lib/${library}" SYMBOLIC)
endforeach()
file(WRITE "${torch}/version.py" "cuda: Optional[str] = None\n")
file(STRINGS "${TORCH}/share/cmake/Torch/TorchConfigVersion.cmake" version REGEX "^set.PACKAGE_VERSION ")
string(REGEX MATCH "[0-9.]+" version "${version}")
function(write_version version)
  file(WRITE "${torch}/share/cmake/Torch/TorchConfigVersion.cmake"
       "set(PACKAGE_VERSION ${version})\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
endfunction()
configure_file("${CMAKE_CURRENT_LIST_DIR}/TorchConfig.cmake" "${torch}/share/cmake/Torch/TorchConfig.cmake" COPYONLY)

list(FILTER same_libtorch INCLUDE REGEX NVML)
function(configure folder warnings)  # and more options
  run(${CMAKE_COMMAND} -G Ninja -S "${SOURCE}" -B "${work}/${folder}" -DCMAKE_BUILD_TYPE=Debug
      -DCMAKE_CXX_FLAGS_DEBUG=-O0 "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
      -DUSE_GPU_WARNINGS_AS_ERRORS=ON "-DTorch_DIR=${torch}/share/cmake/Torch" ${same_libtorch}
      -DUSE_GPU_BUILD_BENCHMARKS=OFF -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=24 -DUSE_GPU_JOINED_TESTS=ON
      -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON "-DUSE_GPU_TEST_NOUNS=${nouns}" ${ARGN})
  set(output "${output}" PARENT_SCOPE)
  string(REGEX MATCHALL "CMake [A-Za-z ]*Warning" found "${output}")
  list(LENGTH found count)
  if(NOT count EQUAL warnings)
    message(FATAL_ERROR "${count} warnings instead of ${warnings}:\n${output}")
  endif()
  if(NOT output MATCHES "simulate_gpus, .* is left out")
    message(FATAL_ERROR "nothing says that simulate_gpus is left out:\n${output}")
  endif()
endfunction()
write_version(2.99.0)  # newer than the newest tested
set(nouns "device|diagnosis|metric_log|parameter_file|parameters|transfers")
configure(newer 1)
write_version("${version}")
configure(build 0)
run(${CMAKE_COMMAND} --build "${work}/build" --target 03_num_gpus core_tests files_tests
    training_tests transfers_tests)
run(${CMAKE_CTEST_COMMAND} --test-dir "${work}/build" --no-tests=error -R "^(core|files|training|transfers)_tests.0_gpus")
run("${work}/build/examples/03_num_gpus")
if(NOT output MATCHES "built for CUDA, but libtorch_cuda.so is not loaded")  # as this libtorch_cpu says
  message(FATAL_ERROR "the reason for there being no GPU is wrong:\n${output}")
endif()

# The room core alone: without nlohmann-json, xxHash and Gloo, which it does not ask for, as CMake's one warning says, and
# with no header of another room. A project is told which room it lacks.
configure(core 1 -DUSE_GPU_ROOMS=core -DUSE_GPU_BUILD_TESTS=OFF -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON
          -DUSE_GPU_XXHASH_LIBRARY=NOTFOUND -DUSE_GPU_GLOO_INCLUDE_DIR=NOTFOUND)
if(NOT output MATCHES "not used by the project:.*nlohmann_json.*GLOO.*XXHASH")
  message(FATAL_ERROR "the room core should not have looked for these:\n${output}")
endif()
run(${CMAKE_COMMAND} --build "${work}/core")
run(${CMAKE_COMMAND} --install "${work}/core" --prefix "${work}/prefix")
if(EXISTS "${work}/prefix/include/use_gpu/tensor_file.hpp" OR NOT EXISTS "${work}/prefix/include/use_gpu/tensor.hpp")
  message(FATAL_ERROR "the headers of core, and only these, should have been installed")
endif()
file(WRITE "${work}/project/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(rooms CXX)
find_package(use_gpu REQUIRED COMPONENTS core)
find_package(use_gpu COMPONENTS files)
if(NOT TARGET use_gpu::use_gpu OR use_gpu_FOUND)
  message(FATAL_ERROR \"core should have been found, files not\")
endif()
")
run(${CMAKE_COMMAND} -G Ninja -S "${work}/project" -B "${work}/project/build" "-DCMAKE_PREFIX_PATH=${work}/prefix"
    "-DTorch_DIR=${torch}/share/cmake/Torch" "-DCMAKE_CXX_COMPILER=${COMPILER}")
if(NOT output MATCHES "without[ \n]+files")
  message(FATAL_ERROR "nothing says that the room files was left out:\n${output}")
endif()
