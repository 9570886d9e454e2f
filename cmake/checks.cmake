# Traps of the libraries we use, found on real machines, refused when configuring instead of met in a crash.

# A protobuf that is not static and hidden crashes beside Debian's libsentencepiece (cmake/protobuf.cmake).
function(quintet_refuse_protobuf)
  get_property(targets DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type MATCHES "STATIC_LIBRARY|SHARED_LIBRARY|EXECUTABLE")
      get_target_property(libraries ${target} LINK_LIBRARIES)
      list(REMOVE_ITEM libraries Quintet::protobuf)
      if("${libraries}" MATCHES "protobuf")
        message(FATAL_ERROR "${target} links a protobuf (${libraries}) that crashes beside SentencePiece. "
                            "Use quintet_messages of cmake/protobuf.cmake, which links a hidden one.")
      endif()
    endif()
  endforeach()
endfunction()

# Debian has a serial HDF5 and one for each MPI; linking two of them collides. Ours is the serial one.
function(quintet_refuse_mpi_hdf5 library include_folder)
  if("${library};${include_folder}" MATCHES "mpi")
    message(FATAL_ERROR "HDF5 found is an MPI build (${library}, ${include_folder}); the serial one is needed: "
                        "apt-get install libhdf5-dev")
  endif()
endfunction()

# Libraries of a conda environment are built against another C++ runtime.
function(quintet_warn_of_conda)
  set(prefix "$ENV{CONDA_PREFIX}")
  if(prefix)
    get_cmake_property(names CACHE_VARIABLES)
    foreach(name ${names})
      if("${${name}}" MATCHES "^${prefix}/" AND name MATCHES "(_DIR|LIBRARY|INCLUDE_DIR)$")
        message(WARNING "${name} is in the conda environment: ${${name}}. Deactivate conda if the build or the "
                        "program fails in that library.")
      endif()
    endforeach()
  endif()
endfunction()

# Fails when configuring, with the package's name, not when compiling.
function(quintet_require_header header package)
  include(CheckIncludeFileCXX)
  string(MAKE_C_IDENTIFIER "QUINTET_HAS_${header}" found)
  check_include_file_cxx(${header} ${found})
  if(NOT ${found})
    message(FATAL_ERROR "<${header}> is missing: apt-get install ${package}, or run scripts/quickstart")
  endif()
endfunction()
