# CUDA is found by itself and optional. QUINTET_CUDA: AUTO (the default), ON (an error without it), OFF.
# Sets QUINTET_CUDA_FOUND, QUINTET_CUDA_STATUS (printed by `quintet --version`).
set(QUINTET_CUDA AUTO CACHE STRING "use CUDA: AUTO, ON or OFF")
set_property(CACHE QUINTET_CUDA PROPERTY STRINGS AUTO ON OFF)
set(QUINTET_CUDA_FOUND OFF)

if(QUINTET_CUDA STREQUAL "OFF")
  set(QUINTET_CUDA_STATUS "off")
else()
  find_program(QUINTET_NVCC nvcc HINTS $ENV{CUDACXX} PATHS /usr/local/cuda/bin)
  if(QUINTET_NVCC)
    execute_process(COMMAND ${QUINTET_NVCC} --version OUTPUT_VARIABLE nvcc_output ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" ignored "${nvcc_output}")
    set(nvcc_version "${CMAKE_MATCH_1}")
  endif()
  if(NOT QUINTET_NVCC OR NOT nvcc_version)
    set(QUINTET_CUDA_STATUS "no nvcc found")
  elseif(nvcc_version VERSION_LESS 12.4)
    # Debian 12's own toolkit is 11.8, whose nvcc does not know C++20.
    set(QUINTET_CUDA_STATUS "nvcc ${nvcc_version} at ${QUINTET_NVCC} is too old, 12.4 is needed")
  else()
    set(QUINTET_CUDA_FOUND ON)
    set(QUINTET_CUDA_STATUS "toolkit ${nvcc_version}")
    get_filename_component(QUINTET_CUDA_ROOT ${QUINTET_NVCC} DIRECTORY)
    get_filename_component(QUINTET_CUDA_ROOT ${QUINTET_CUDA_ROOT} DIRECTORY)
  endif()
  if(QUINTET_CUDA STREQUAL "ON" AND NOT QUINTET_CUDA_FOUND)
    message(FATAL_ERROR "QUINTET_CUDA=ON, but ${QUINTET_CUDA_STATUS}. Install the CUDA toolkit (12.4 or newer), "
                        "put nvcc on PATH or set CUDACXX, or configure with -DQUINTET_CUDA=AUTO.")
  endif()
endif()

if(QUINTET_CUDA_FOUND)
  # Debian's libthrust-dev and libcub-dev (1.17) would be included instead of the toolkit's own.
  foreach(header thrust/version.h cub/version.cuh)
    if(EXISTS /usr/include/${header})
      message(FATAL_ERROR "/usr/include/${header} shadows the CUDA toolkit's: apt-get remove libthrust-dev libcub-dev")
    endif()
  endforeach()
  set(CMAKE_CUDA_COMPILER ${QUINTET_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # QUINTET_CUDA_GENCODE says
  enable_language(CUDA)
  # CMake 3.25 does not know nvcc's flag for C++20 and would compile .cu files as C++17.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
endif()
message(STATUS "CUDA: ${QUINTET_CUDA_STATUS}")
