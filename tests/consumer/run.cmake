# Installs the build, builds the README's project and this folder's against it, and runs both: as a user
# would, without LD_LIBRARY_PATH and without this tree in any path.
#   cmake -DBUILD=<build folder> -DSOURCE=<project folder> -P run.cmake
set(work "${BUILD}/consumer")
file(REMOVE_RECURSE "${work}")

include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")
write_snippet(cpp "${work}/readme/main.cpp")
write_snippet(cmake "${work}/readme/CMakeLists.txt")

# build(<source folder> <name> [options]): a project that finds the installed package, in ${work}/<name>.
function(build source name)
  run(${CMAKE_COMMAND} -G Ninja -S "${source}" -B "${work}/${name}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
      "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DCMAKE_CXX_FLAGS=${FLAGS}" ${ARGN})
  run(${CMAKE_COMMAND} --build "${work}/${name}")
endfunction()
run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${work}/prefix")
build("${CMAKE_CURRENT_LIST_DIR}" build "-DPROGRAM=${work}/readme/main.cpp")
build("${work}/readme" readme/build)

unset(ENV{LD_LIBRARY_PATH})
set(hidden ${CMAKE_COMMAND} -E env CUDA_VISIBLE_DEVICES=)  # set(ENV{...} "") would show a machine's GPUs
run(${hidden} "${work}/readme/build/app")
if(NOT output MATCHES "on cpu")
  message(FATAL_ERROR "the README's app should have run on the CPU:\n${output}")
endif()
# The same program finds simulated GPUs when the installed simulate_gpus starts it, here and as a project's test.
unset(ENV{CUDA_VISIBLE_DEVICES})
run("${work}/prefix/bin/simulate_gpus" 1 "${work}/readme/build/app")
if(NOT output MATCHES "on cuda:0")
  message(FATAL_ERROR "the README's app should have run on cuda:0:\n${output}")
endif()
run(${CMAKE_CTEST_COMMAND} --test-dir "${work}/build" --no-tests=error)
# The README's command, as it is after the README's set-up.
file(READ "${SOURCE}/README.md" readme)
if(NOT readme MATCHES "\n\\$ <prefix>/([^\n]*)\n([^`]*)```")
  message(FATAL_ERROR "README.md has no command that begins with <prefix>/")
endif()
set(expected "${CMAKE_MATCH_2}")
file(WRITE "${work}/command.sh" "cd '${SOURCE}' && '${work}/prefix'/${CMAKE_MATCH_1}")
if("${same_libtorch}" MATCHES "Torch_DIR[^;]*/\\.venv/")  # with a LibTorch of its own the command is another
  run(sh "${work}/command.sh")
  if(NOT output STREQUAL expected)
    message(FATAL_ERROR "the README's command should have printed:\n${expected}\nIt printed:\n${output}")
  endif()
endif()
file(GLOB libraries "${work}/prefix/lib*/libuse_gpu*.so" "${work}/prefix/lib/*/libuse_gpu*.so")
list(LENGTH libraries count)
if(count LESS 3)
  message(FATAL_ERROR "not all libraries were installed: ${libraries}")
endif()
foreach(library IN LISTS libraries)
  run(ldd "${library}")
  if(output MATCHES "not found")
    message(FATAL_ERROR "${library} does not find what it needs by itself:\n${output}")
  endif()
endforeach()
run(${hidden} "${work}/build/alone")
run("${work}/build/cards")
run(ldd "${work}/build/cards")
if(output MATCHES "torch|libc10")
  message(FATAL_ERROR "use_gpu::gpu_info must not need LibTorch:\n${output}")
endif()
