# Device sources (kernels/**/*.cu, runtime/*.cu) make libraries of the same text:
#   quintet_emulated          by the host's compiler, on the SIMT emulator (quintet_emulator); with QUINTET_EMULATOR
#   quintet_emulated_checked  the same under AddressSanitizer, for the tests of single kernels
#   quintet_cuda              by nvcc, when CUDA is there
# Both register nothing by themselves: runtime/device/devices.cpp opens them.
option(QUINTET_EMULATOR "build the emulated GPU that tests run kernels on" ${QUINTET_TESTS})
set(QUINTET_CUDA_GENCODE
    "SHELL:-gencode arch=compute_80,code=sm_80"
    "SHELL:-gencode arch=compute_90a,code=sm_90a"
    "SHELL:-gencode arch=compute_90,code=compute_90"
    CACHE STRING "architectures nvcc compiles for; newer GPUs take the PTX of compute_90")
set(QUINTET_CUDA_CHECKED_GENCODE "" CACHE STRING "another one, of the files with lines for sm_80 in tests/static/hot_kernels.txt")

function(quintet_gpu_libraries)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
       ${CMAKE_SOURCE_DIR}/kernels/*.cu ${CMAKE_SOURCE_DIR}/runtime/*.cu)
  file(GLOB emulator CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/simt/emulator/engine/*.cpp)
  set(wrappers "")
  foreach(source ${sources})
    set(wrapper ${CMAKE_BINARY_DIR}/emulated/${source}.cpp)
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"${source}\"\n")
    if(source MATCHES "^kernels/simt/")
      list(APPEND emulator ${wrapper})
    else()
      list(APPEND wrappers ${wrapper})
    endif()
  endforeach()
  if(QUINTET_EMULATOR OR QUINTET_TESTS)
    add_library(quintet_emulator STATIC EXCLUDE_FROM_ALL ${emulator})
    set(libraries quintet_emulator)
  endif()
  if(QUINTET_EMULATOR)
    add_library(quintet_emulated STATIC ${wrappers})
    target_link_libraries(quintet_emulated PUBLIC quintet_emulator)
    list(APPEND libraries quintet_emulated)
    if(QUINTET_SANITIZE)
      add_library(quintet_emulated_checked ALIAS quintet_emulated)
    else()
      # Objects, so that a program has these kernels and not those of quintet_emulated behind quintet_runtime.
      add_library(quintet_emulated_checked OBJECT EXCLUDE_FROM_ALL ${emulator} ${wrappers})
      target_compile_options(quintet_emulated_checked PRIVATE -fsanitize=address -fno-omit-frame-pointer -O1 -g1)
      target_link_options(quintet_emulated_checked INTERFACE -fsanitize=address)
      list(APPEND libraries quintet_emulated_checked)
    endif()
  endif()
  foreach(library ${libraries})
    target_compile_definitions(${library} PRIVATE QUINTET_EMULATE=1)
    # g++ 12 takes arrays that a loop fills for uninitialised after inlining.
    target_compile_options(${library} PRIVATE -Wall -Wextra -Werror -Wno-unknown-pragmas
                           -Wno-maybe-uninitialized)
    target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
    target_link_libraries(${library} PUBLIC quintet_kernels Quintet::boost_context)
  endforeach()
  if(QUINTET_CUDA_FOUND)
    file(GLOB host CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/simt/host/*.cpp)
    add_library(quintet_cuda STATIC ${sources} ${host})
    # nvcc cannot evaluate fmt's compile-time checks of format strings; g++ does in the emulated library.
    target_compile_definitions(quintet_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=>
                               $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
    target_compile_options(quintet_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${QUINTET_CUDA_GENCODE}>
      $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr> $<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=20012>)
    file(STRINGS ${CMAKE_SOURCE_DIR}/tests/static/hot_kernels.txt lines REGEX " 80 ")
    list(TRANSFORM lines REPLACE ":.*" "")
    list(REMOVE_DUPLICATES lines)
    foreach(name ${lines})
      set(checked ${sources})
      list(FILTER checked INCLUDE REGEX "/${name}\\.cu$")
      set_property(SOURCE ${checked} PROPERTY COMPILE_OPTIONS ${QUINTET_CUDA_CHECKED_GENCODE})
    endforeach()
    include(CheckCompilerFlag)
    check_compiler_flag(CUDA --compress-mode=size QUINTET_NVCC_COMPRESSES)  # from 12.8 on; a fifth of the size
    if(QUINTET_NVCC_COMPRESSES)
      target_compile_options(quintet_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>)
    endif()
    set(launcher ${CMAKE_SOURCE_DIR}/scripts/nvcc_strict ${CMAKE_CUDA_COMPILER_LAUNCHER})
    set_target_properties(quintet_cuda PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
    target_include_directories(quintet_cuda PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
    target_include_directories(quintet_cuda SYSTEM PRIVATE ${QUINTET_CUDA_ROOT}/include)
    # CUDA's runtime comes in statically, the driver and cuBLASLt are loaded: programs start where neither is.
    set_target_properties(quintet_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static)
    target_link_libraries(quintet_cuda PUBLIC quintet_kernels)
  endif()
endfunction()
