# What makes this project's own builds fast: ccache and lld, where they are installed, and precompiled headers. A
# project that adds this one has its own ways: there nothing here has an effect.
if(PROJECT_IS_TOP_LEVEL)
  find_program(USE_GPU_LLD ld.lld DOC "lld, which links faster")
  if(USE_GPU_LLD)
    add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=lld>)
  endif()
  find_program(USE_GPU_CCACHE ccache DOC "ccache, which keeps compiled sources")
  # BASEDIR, NOHASHDIR: another clone finds what this one has compiled. INODECACHE: LibTorch's headers, and precompiled
  # ones of 0.5 GB, are not read again for each source.
  set(ccache CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_INODECACHE=1)
  if(USE_GPU_CCACHE)  # of tests that build
    set(USE_GPU_CCACHE_ENVIRONMENT CMAKE_CXX_COMPILER_LAUNCHER=${USE_GPU_CCACHE} ${ccache})
  endif()
  if(USE_GPU_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # The size is above that of all presets.
    set(ccache_launcher ${CMAKE_COMMAND} -E env ${ccache} CCACHE_MAXSIZE=30G CCACHE_SLOPPINESS=pch_defines,time_macros)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_launcher} ${USE_GPU_CCACHE})
    add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}=.)  # __FILE__, of which LibTorch's macros are full
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options(-fpch-preprocess)  # else ccache cannot tell which precompiled header was read
    else()
      add_compile_options("SHELL:-Xclang -fno-pch-timestamp")  # else ccache takes each clone's headers for others, by their times
    endif()
  endif()
endif()

# use_gpu_joined_no_more(): from here on, sources are not joined, but for those of use_gpu_join_tests. ccache then takes
# what a source includes from the compiler's list, and preprocesses nothing itself. Joined sources are found by another
# clone in their preprocessed form only, as they name their parts by absolute paths.
macro(use_gpu_joined_no_more)
  set(CMAKE_UNITY_BUILD OFF)
  if(ccache_launcher)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_launcher} CCACHE_DEPEND=1 ${USE_GPU_CCACHE})
  endif()
endmacro()

# use_gpu_join_tests(<target>): with USE_GPU_JOINED_TESTS, joins the sources of a test program. The templates of LibTorch's
# headers are then compiled once for all of them. Without it, a source that has changed is compiled in less time.
function(use_gpu_join_tests target)
  if(USE_GPU_JOINED_TESTS)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
    if(ccache_launcher)
      set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${ccache_launcher};${USE_GPU_CCACHE}")
    endif()
  endif()
endfunction()

# The target's sources that include large headers, of LibTorch or Google Test, are compiled with precompiled ones: those
# of <from>, or its own. For any other source loading them would take longer than compiling.
function(use_gpu_precompile_for target)
  if(NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  target_precompile_headers(${target} ${ARGN})
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  foreach(source IN LISTS sources)
    file(STRINGS ${source} large REGEX "#include (<torch/|<gtest|<ATen/(ATen|Functions).h|\"fault_actions)")
    if(NOT large)
      set_property(SOURCE ${source} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# use_gpu_precompile(<target> <headers>), use_gpu_reuse_headers(<target> <from>)
function(use_gpu_precompile target)
  use_gpu_precompile_for(${target} PRIVATE ${ARGN})
endfunction()
function(use_gpu_reuse_headers target from)
  use_gpu_precompile_for(${target} REUSE_FROM ${from})
endfunction()
