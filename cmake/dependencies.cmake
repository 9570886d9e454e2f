# The libraries that Quintet is linked with: read by its own build, and by the CMake package that it installs
# (cmake/QuintetConfig.cmake), since static libraries come without theirs.
find_package(fmt REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(hwy REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(ICU REQUIRED IMPORTED_TARGET icu-uc)

# quintet_import(NAME PACKAGE FILE...): Quintet::NAME, a library without a CMake package that would serve.
function(quintet_import name package)
  find_library(QUINTET_LIBRARY_${name} NAMES ${ARGN})
  if(NOT QUINTET_LIBRARY_${name})
    message(FATAL_ERROR "the library ${ARGN} is missing: apt-get install ${package}, or run scripts/quickstart")
  endif()
  if(NOT TARGET Quintet::${name})
    add_library(Quintet::${name} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(Quintet::${name} PROPERTIES IMPORTED_LOCATION ${QUINTET_LIBRARY_${name}})
  endif()
endfunction()
quintet_import(dnnl libdnnl-dev dnnl)  # its own CMake package insists on OpenCL, which nothing here needs
quintet_import(highwayhash libhighwayhash-dev highwayhash)
quintet_import(boost_context libboost-context-dev boost_context)
quintet_import(hdf5_serial libhdf5-dev hdf5_serial)  # by name: CMake's module may find the MPI one, which wants mpi.h everywhere
find_path(QUINTET_HISTEDIT histedit.h)
find_library(QUINTET_LIBRARY_edit NAMES edit)
if(QUINTET_NEEDS_EDIT OR (QUINTET_HISTEDIT AND QUINTET_LIBRARY_edit))  # needed by an installed package that was built with it
  quintet_import(edit libedit-dev edit)
endif()
quintet_import(protobuf libprotobuf-dev libprotobuf-lite.a)  # static and hidden: cmake/protobuf.cmake says why
# Dependencies stand behind what depends on them. --as-needed: few programs need SentencePiece.
set_property(TARGET Quintet::protobuf PROPERTY INTERFACE_LINK_LIBRARIES sentencepiece sentencepiece_train)
set_property(TARGET Quintet::protobuf PROPERTY INTERFACE_LINK_OPTIONS LINKER:--as-needed
             LINKER:--exclude-libs,libprotobuf-lite.a:libquintet_data.a:libquintet_runtime.a:libquintet_checkpoint.a)
