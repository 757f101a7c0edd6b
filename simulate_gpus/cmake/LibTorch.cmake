# LibTorch and the headers of CUDA and NVML, by their files alone: LibTorch's CMake package asks for a CUDA compiler,
# which nothing here needs.
#   Torch_DIR         the folder of LibTorch's TorchConfig.cmake; by default of the torch that python3 has
#   CUDAToolkit_ROOT  a CUDA Toolkit; by default what find_package(CUDAToolkit) has found before, pip's beside LibTorch,
#                     or the one in CUDA_HOME or /usr/local/cuda
# Sets SIMULATE_GPUS_TORCH (LibTorch's folder), SIMULATE_GPUS_TORCH_VERSION, SIMULATE_GPUS_CUDA_VERSION (the major
# one), SIMULATE_GPUS_TORCH_CUDA (LibTorch's own, 13.0, as its Python package says; else empty), SIMULATE_GPUS_CUDA_INCLUDE_DIR and SIMULATE_GPUS_NVML_INCLUDE_DIR, SIMULATE_GPUS_NCCL_INCLUDE_DIR where there
# is NCCL, SIMULATE_GPUS_CUPTI_INCLUDE_DIR where there are CUPTI's headers; defines simulate_gpus_libtorch.
if(NOT Torch_DIR)
  if(NOT Python3_EXECUTABLE)  # pip names its own
    set(Python3_EXECUTABLE python3)
  endif()
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0], end='')"
    OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "LibTorch was not found: ${Python3_EXECUTABLE} has no torch. Give -DTorch_DIR=<folder of TorchConfig.cmake>, "
                        "or pip install torch.")
  endif()
  set(Torch_DIR ${found}/share/cmake/Torch CACHE PATH "The folder of TorchConfig.cmake")
endif()
cmake_path(SET SIMULATE_GPUS_TORCH NORMALIZE "${Torch_DIR}/../../..")
string(REGEX REPLACE "/$" "" SIMULATE_GPUS_TORCH "${SIMULATE_GPUS_TORCH}")

include(${Torch_DIR}/TorchConfigVersion.cmake)
set(SIMULATE_GPUS_TORCH_VERSION ${PACKAGE_VERSION})
if(SIMULATE_GPUS_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "${SIMULATE_GPUS_TORCH} is LibTorch ${SIMULATE_GPUS_TORCH_VERSION}; simulate_gpus is for 2.11 and newer: "
                      "pip install 'torch>=2.11', or give the Torch_DIR of one.")
endif()
set(linked "")
if(EXISTS ${SIMULATE_GPUS_TORCH}/lib/libc10_cuda.so)
  file(STRINGS ${SIMULATE_GPUS_TORCH}/lib/libc10_cuda.so linked REGEX "libcudart[^/]*\\.so\\.[0-9]+" LIMIT_COUNT 1)
endif()
if(NOT linked MATCHES "libcudart[^/]*\\.so\\.([0-9]+)")
  message(FATAL_ERROR "${SIMULATE_GPUS_TORCH} is a LibTorch without CUDA. Simulated GPUs run LibTorch's own CUDA code: "
                      "give the Torch_DIR of one that was built for CUDA.")
endif()
set(SIMULATE_GPUS_CUDA_VERSION ${CMAKE_MATCH_1})
set(SIMULATE_GPUS_TORCH_CUDA "")
if(EXISTS ${SIMULATE_GPUS_TORCH}/version.py)
  file(STRINGS ${SIMULATE_GPUS_TORCH}/version.py line REGEX "^cuda.*'" LIMIT_COUNT 1)
  string(REGEX REPLACE ".*'(.*)'" "\\1" SIMULATE_GPUS_TORCH_CUDA "${line}")
endif()

file(GLOB beside ${SIMULATE_GPUS_TORCH}/../nvidia/cu*/include)
set(folders HINTS ${CUDAToolkit_ROOT}/include ${CUDAToolkit_INCLUDE_DIRS} ${beside}
            PATHS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
# CUDA's headers include this one, which LibTorch's wheels do not bring.
find_path(SIMULATE_GPUS_CUDA_INCLUDE_DIR crt/host_defines.h ${folders}
          DOC "The folder of cuda.h and crt/host_defines.h")
find_path(SIMULATE_GPUS_NVML_INCLUDE_DIR nvml.h ${folders} DOC "The folder of nvml.h")
find_path(SIMULATE_GPUS_NCCL_INCLUDE_DIR nccl.h HINTS ${SIMULATE_GPUS_TORCH}/../nvidia/nccl/include ${folders}
          DOC "The folder of nccl.h")
list(TRANSFORM folders REPLACE "/include$" "/extras/CUPTI/include" OUTPUT_VARIABLE extras)
find_path(SIMULATE_GPUS_CUPTI_INCLUDE_DIR cupti.h ${folders} ${extras} DOC "The folder of cupti.h")
if(NOT SIMULATE_GPUS_CUDA_INCLUDE_DIR OR NOT SIMULATE_GPUS_NVML_INCLUDE_DIR)
  message(FATAL_ERROR "CUDA's headers were not found. Beside LibTorch, pip installs them: "
                      "pip install 'cuda-toolkit[crt,nvml]==${SIMULATE_GPUS_CUDA_VERSION}.*'; "
                      "or give -DCUDAToolkit_ROOT=<folder of a CUDA Toolkit>.")
endif()

add_library(simulate_gpus_libtorch INTERFACE)
target_include_directories(simulate_gpus_libtorch SYSTEM INTERFACE
  ${SIMULATE_GPUS_TORCH}/include ${SIMULATE_GPUS_TORCH}/include/torch/csrc/api/include ${SIMULATE_GPUS_CUDA_INCLUDE_DIR})
set(names torch torch_cpu torch_cuda c10 c10_cuda)
list(TRANSFORM names REPLACE "(.+)" "${SIMULATE_GPUS_TORCH}/lib/lib\\1.so")
target_link_libraries(simulate_gpus_libtorch INTERFACE ${names})
