# Where LibTorch and its CUDA Toolkit are. One look-up, used three times: by this project's build, by
# the installed package (use_gpuConfig.cmake), and by scripts/setup (cmake -P cmake/LibTorch.cmake),
# which downloads what it does not find.
#
#   LibTorch      1. what the user named: Torch_DIR, CMAKE_PREFIX_PATH (CMake or environment variable)
#                 2. the one that the installed package was built with (USE_GPU_BUILT_WITH_TORCH)
#                 3. a supported torch in the current python3, of USE_GPU_TORCH_VERSION if that is set
#                 4. the one in USE_GPU_VENV, which scripts/setup fills
#   CUDA Toolkit  1. what the user named: CUDAToolkit_ROOT, CUDA_PATH, CUDA_HOME, CUDACXX
#                 2. a toolkit of LibTorch's CUDA version: nvcc on the PATH, /usr/local/cuda
#                 3. the one that the installed package was built with (USE_GPU_BUILT_WITH_CUDA)
#                 4. the compiler from PyPI in USE_GPU_VENV
#                 5. none: the CUDA runtime that comes with LibTorch is enough for a program that compiles no CUDA

set(USE_GPU_OLDEST_TORCH 2.11)  # supported
set(USE_GPU_NEWEST_TORCH 2.15)  # tested; newer ones bring a warning
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH USE_GPU_VENV)
string(APPEND USE_GPU_VENV "/.venv")
if(USE_GPU_TORCH_VERSION)
  string(APPEND USE_GPU_VENV "-${USE_GPU_TORCH_VERSION}")
endif()

# The folder of TorchConfig.cmake, or "" in <out>.
function(use_gpu_locate_libtorch out)
  set(${out} "" PARENT_SCOPE)
  foreach(named "${Torch_DIR}" "$ENV{Torch_DIR}")
    if(named)
      set(${out} "${named}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  string(REPLACE ":" ";" prefixes "${CMAKE_PREFIX_PATH}:$ENV{CMAKE_PREFIX_PATH}")
  foreach(prefix IN LISTS prefixes)
    foreach(suffix share/cmake/Torch Torch)
      if(prefix AND EXISTS "${prefix}/${suffix}/TorchConfig.cmake")
        set(${out} "${prefix}/${suffix}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()

  if(EXISTS "${USE_GPU_BUILT_WITH_TORCH}/TorchConfig.cmake")
    set(${out} "${USE_GPU_BUILT_WITH_TORCH}" PARENT_SCOPE)
    return()
  endif()

  # Asks for the package's place and version without importing it, which would take seconds.
  execute_process(
    COMMAND python3 -c "import importlib.util as u, importlib.metadata as m
print(u.find_spec('torch').submodule_search_locations[0], m.version('torch').split('+')[0], sep=';', end='')"
    OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    list(POP_FRONT found folder version)
    if(version VERSION_GREATER_EQUAL USE_GPU_OLDEST_TORCH AND
       (NOT USE_GPU_TORCH_VERSION OR version VERSION_EQUAL USE_GPU_TORCH_VERSION))
      set(${out} "${folder}/share/cmake/Torch" PARENT_SCOPE)
      return()
    endif()
  endif()

  file(GLOB in_venv "${USE_GPU_VENV}/lib/python3.*/site-packages/torch/share/cmake/Torch")
  set(${out} "${in_venv}" PARENT_SCOPE)
endfunction()

# The CUDA version that this LibTorch was built for, 13.0, in <out>: as its Python package says, else the major
# version of the CUDA runtime that it links, 13. "" if it was built without CUDA.
function(use_gpu_cuda_version_of torch_dir out)
  set(${out} "" PARENT_SCOPE)
  cmake_path(SET prefix NORMALIZE "${torch_dir}/../../..")
  foreach(source "version.py;^cuda.*'([0-9.]+)'" "lib/libc10_cuda.so;libcudart[^/]*\\.so\\.([0-9]+)")
    list(POP_FRONT source file pattern)
    if(EXISTS "${prefix}/${file}")
      file(STRINGS "${prefix}/${file}" line REGEX "${pattern}" LIMIT_COUNT 1)
      if(line MATCHES "${pattern}")
        set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# The root of the toolkit that this nvcc belongs to: the folder above its bin.
function(use_gpu_toolkit_of nvcc out)
  file(REAL_PATH "${nvcc}" nvcc)
  cmake_path(GET nvcc PARENT_PATH bin)
  cmake_path(GET bin PARENT_PATH root)
  set(${out} "${root}" PARENT_SCOPE)
endfunction()

# The root of a CUDA Toolkit for that CUDA version, or "" in <out>.
function(use_gpu_locate_cuda_toolkit cuda_version out)
  set(${out} "" PARENT_SCOPE)
  foreach(named "${CUDAToolkit_ROOT}" "$ENV{CUDAToolkit_ROOT}" "$ENV{CUDA_PATH}" "$ENV{CUDA_HOME}")
    if(named)
      set(${out} "${named}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  if(DEFINED ENV{CUDACXX})
    find_program(nvcc NAMES "$ENV{CUDACXX}" NO_CACHE)
    use_gpu_toolkit_of("${nvcc}" root)
    set(${out} "${root}" PARENT_SCOPE)
    return()
  endif()
  string(REPLACE ":" ";" folders "$ENV{PATH}:/usr/local/cuda/bin")
  foreach(folder IN LISTS folders)
    if(EXISTS "${folder}/nvcc")
      execute_process(COMMAND "${folder}/nvcc" --version OUTPUT_VARIABLE version ERROR_QUIET)
      if(version MATCHES "release ${cuda_version}[.,]")
        use_gpu_toolkit_of("${folder}/nvcc" root)
        set(${out} "${root}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
  if(EXISTS "${USE_GPU_BUILT_WITH_CUDA}/bin/nvcc")
    set(${out} "${USE_GPU_BUILT_WITH_CUDA}" PARENT_SCOPE)
    return()
  endif()
  file(GLOB in_venv "${USE_GPU_VENV}/lib/python3.*/site-packages/nvidia/cu*/bin/nvcc")
  if(in_venv)
    use_gpu_toolkit_of("${in_venv}" root)
    set(${out} "${root}" PARENT_SCOPE)
  endif()
endfunction()

# What LibTorch's CMake package makes of a CUDA Toolkit, from the CUDA runtime that comes with this LibTorch: the package
# then asks for no CUDA compiler.
function(use_gpu_add_cuda_runtime_of torch_dir)
  cmake_path(SET prefix NORMALIZE "${torch_dir}/../../..")
  file(GLOB runtime "${prefix}/../nvidia/cu*/lib/libcudart.so.*" "${prefix}/lib/libcudart*.so.*")
  if(runtime AND NOT TARGET CUDA::cudart AND NOT TARGET torch::cudart)
    list(GET runtime 0 runtime)
    cmake_path(SET include NORMALIZE "${runtime}/../../include")
    add_library(CUDA::cudart SHARED IMPORTED GLOBAL)
    set_target_properties(CUDA::cudart PROPERTIES
      IMPORTED_LOCATION "${runtime}" INTERFACE_INCLUDE_DIRECTORIES "${include}")
    add_library(torch::cudart INTERFACE IMPORTED GLOBAL)
    target_link_libraries(torch::cudart INTERFACE CUDA::cudart)
  endif()
endfunction()

# find_package(Torch), found as above, and use_gpu::libtorch, which links all of it. A macro, so that what TorchConfig.cmake sets and the CUDA language that
# it enables are the caller's.
macro(use_gpu_find_libtorch)
  if(NOT TARGET torch OR NOT DEFINED TORCH_LIBRARIES)  # the project may have found it before
    use_gpu_locate_libtorch(_use_gpu_torch)
    if(_use_gpu_torch)
      # By force: a look-up that failed before has left "Torch_DIR-NOTFOUND" behind.
      set(Torch_DIR "${_use_gpu_torch}" CACHE PATH "The folder of TorchConfig.cmake" FORCE)
    endif()
    # A LibTorch built for CUDA enables the CUDA language, to which it gives the project's C++ standard:
    # CMake 3.25 stops at CUDA20. Nothing here compiles CUDA; the project's own setting comes back.
    if(NOT CMAKE_CUDA_STANDARD)
      set(CMAKE_CUDA_STANDARD 17)
      set(_use_gpu_unset_cuda_standard TRUE)
    endif()
    use_gpu_cuda_version_of("${Torch_DIR}" _use_gpu_cuda_version)
    use_gpu_locate_cuda_toolkit("${_use_gpu_cuda_version}" _use_gpu_cuda)
    if(_use_gpu_cuda_version AND _use_gpu_cuda AND NOT CMAKE_CUDA_COMPILER)
      set(CUDAToolkit_ROOT "${_use_gpu_cuda}" CACHE PATH "The CUDA Toolkit of LibTorch's CUDA version")
      set(CUDA_TOOLKIT_ROOT_DIR "${_use_gpu_cuda}" CACHE PATH "The same, for LibTorch's own look-up")
      set(CMAKE_CUDA_COMPILER "${_use_gpu_cuda}/bin/nvcc" CACHE FILEPATH "The CUDA compiler")
    elseif(_use_gpu_cuda_version AND NOT CMAKE_CUDA_COMPILER)
      use_gpu_add_cuda_runtime_of("${Torch_DIR}")
    endif()
    # Thirty lines, among them "kineto not found", tell a user nothing; errors still show.
    set(_use_gpu_log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
    set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
    set(_use_gpu_global "${CMAKE_FIND_PACKAGE_TARGETS_GLOBAL}")
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)  # for whoever adds this project by add_subdirectory
    find_package(Torch ${USE_GPU_OLDEST_TORCH} QUIET)
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL "${_use_gpu_global}")
    set(CMAKE_MESSAGE_LOG_LEVEL "${_use_gpu_log_level}")
    if(_use_gpu_unset_cuda_standard)
      unset(CMAKE_CUDA_STANDARD)
      unset(_use_gpu_unset_cuda_standard)
    endif()
  endif()
  # The linker follows what LibTorch needs, and may come upon a system's older NCCL first.
  if(TARGET torch AND EXISTS "${TORCH_INSTALL_PREFIX}/../nvidia/nccl/lib")
    target_link_options(torch INTERFACE "LINKER:-rpath-link,${TORCH_INSTALL_PREFIX}/../nvidia/nccl/lib")
  endif()
  if(TARGET torch AND NOT TARGET use_gpu::libtorch)
    add_library(use_gpu::libtorch INTERFACE IMPORTED GLOBAL)
    target_link_libraries(use_gpu::libtorch INTERFACE ${TORCH_LIBRARIES})
    # A program names all libraries of LibTorch, whether it calls them or not, and so loads its own: use_gpu's library does
    # not know where they are.
    foreach(_use_gpu_library c10 c10_cuda CUDA::cudart)
      if(TARGET ${_use_gpu_library})
        target_link_libraries(use_gpu::libtorch INTERFACE
          "-Wl,--push-state,--no-as-needed,$<TARGET_FILE:${_use_gpu_library}>,--pop-state")
      endif()
    endforeach()
  endif()
endmacro()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  use_gpu_locate_libtorch(torch)
  use_gpu_cuda_version_of("${torch}" cuda_version)
  use_gpu_locate_cuda_toolkit("${cuda_version}" cuda)
  foreach(found torch cuda_version cuda)
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${found}=${${found}}")
  endforeach()
endif()
