# What makes this project's own builds fast: ccache, where it is installed, and precompiled headers. A project that
# adds this one has its own ways: there nothing here has an effect.
if(PROJECT_IS_TOP_LEVEL)
  find_program(USE_GPU_CCACHE ccache DOC "ccache, which keeps compiled sources")
  if(USE_GPU_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # BASEDIR, NOHASHDIR: another clone finds what this one has compiled. The size is above that of all presets, with
    # a precompiled header of 0.3 GB each.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
        CCACHE_MAXSIZE=30G CCACHE_SLOPPINESS=pch_defines,time_macros ${USE_GPU_CCACHE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options(-fpch-preprocess)  # else ccache cannot tell which precompiled header was read
    endif()
  endif()
endif()

# use_gpu_precompile(<target> <headers>): the target's own precompiled headers.
function(use_gpu_precompile target)
  if(PROJECT_IS_TOP_LEVEL)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# use_gpu_reuse_headers(<target> <from>): those of <from>, which has the same compile options.
function(use_gpu_reuse_headers target from)
  get_target_property(headers ${from} PRECOMPILE_HEADERS)
  if(headers)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()
