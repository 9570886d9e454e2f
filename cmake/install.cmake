# `cmake --install build --prefix P`: the program, the gin files that it finds from there, and what is needed to build
# programs with models of their own: headers, static libraries, a CMake and a pkg-config package (docs/extend.md).
include(GNUInstallDirs)
set(QUINTET_CONFIGS share/quintet/configs)  # apps/config/gin_session.cpp looks there

# Programs of a build folder find the source tree's.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/quintet)
file(RELATIVE_PATH configs ${CMAKE_BINARY_DIR}/share/quintet ${CMAKE_SOURCE_DIR}/models/configs)
file(CREATE_LINK ${configs} ${CMAKE_BINARY_DIR}/${QUINTET_CONFIGS} SYMBOLIC)

install(TARGETS quintet RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(TARGETS quintet_library LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT program)
install(DIRECTORY models/configs/ DESTINATION ${QUINTET_CONFIGS} COMPONENT program FILES_MATCHING PATTERN *.gin)
install(DIRECTORY python/ DESTINATION share/quintet/python COMPONENT program
        FILES_MATCHING PATTERN *.py PATTERN py.typed PATTERN pyproject.toml PATTERN __pycache__ EXCLUDE PATTERN build EXCLUDE
        PATTERN *.egg-info EXCLUDE)
install(FILES apps/library/quintet.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES LICENSE CHANGELOG.md README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
# The program writes its manual pages and completion, when it is installed: a build stays as fast as it is.
install(CODE "
  function(run)
    execute_process(COMMAND $<TARGET_FILE:quintet> \${ARGN} COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  file(REMOVE_RECURSE ${CMAKE_BINARY_DIR}/manual)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/manual)
  run(man --output_dir=${CMAKE_BINARY_DIR}/manual/man1)
  run(completion bash OUTPUT_FILE ${CMAKE_BINARY_DIR}/manual/quintet)
  run(completion zsh OUTPUT_FILE ${CMAKE_BINARY_DIR}/manual/_quintet)
  # The unit starts the program where it is installed.
  file(READ ${CMAKE_SOURCE_DIR}/scripts/quintet-serve.service unit)
  string(REPLACE /usr/local/bin \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR} unit \"\${unit}\")
  file(WRITE ${CMAKE_BINARY_DIR}/manual/quintet-serve.service \"\${unit}\")
" COMPONENT program)
install(DIRECTORY ${CMAKE_BINARY_DIR}/manual/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
install(FILES ${CMAKE_BINARY_DIR}/manual/quintet DESTINATION share/bash-completion/completions COMPONENT program)
install(FILES ${CMAKE_BINARY_DIR}/manual/_quintet DESTINATION share/zsh/site-functions COMPONENT program)
install(FILES ${CMAKE_BINARY_DIR}/manual/quintet-serve.service DESTINATION lib/systemd/system COMPONENT program)

# Everything a program links; the headers keep their paths, below a folder of their own.
set(QUINTET_HEADERS ${CMAKE_INSTALL_INCLUDEDIR}/quintet)
set(QUINTET_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/Quintet)
add_library(quintet_quintet INTERFACE)
target_link_libraries(quintet_quintet INTERFACE quintet_apps)
target_include_directories(quintet_quintet INTERFACE $<INSTALL_INTERFACE:${QUINTET_HEADERS}>)
target_compile_features(quintet_quintet INTERFACE cxx_std_20)
set(libraries quintet_quintet)
foreach(folder base gin mpi kernels emulator emulated cuda runtime models data checkpoint apps)
  if(TARGET quintet_${folder} AND (QUINTET_EMULATOR OR NOT folder STREQUAL "emulator"))
    list(APPEND libraries quintet_${folder})
  endif()
endforeach()
foreach(library ${libraries})
  string(REGEX REPLACE "^quintet_" "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS ${libraries} EXPORT QuintetTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT QuintetTargets NAMESPACE Quintet:: DESTINATION ${QUINTET_PACKAGE} COMPONENT development)
foreach(folder kernels runtime models data checkpoint apps)
  install(DIRECTORY ${folder} DESTINATION ${QUINTET_HEADERS} COMPONENT development
          FILES_MATCHING PATTERN *.h PATTERN *.def PATTERN *.cuh PATTERN configs EXCLUDE)
endforeach()
include(CMakePackageConfigHelpers)
if(TARGET Quintet::edit)
  set(QUINTET_NEEDS_EDIT ON)
  set(QUINTET_LINE_EDITING "-ledit ")
  set(QUINTET_LINE_EDITING_PACKAGE "libedit-dev, ")
endif()
configure_package_config_file(cmake/QuintetConfig.cmake.in ${CMAKE_BINARY_DIR}/QuintetConfig.cmake
                              INSTALL_DESTINATION ${QUINTET_PACKAGE} PATH_VARS QUINTET_CONFIGS)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/QuintetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/QuintetConfig.cmake ${CMAKE_BINARY_DIR}/QuintetConfigVersion.cmake cmake/dependencies.cmake
        DESTINATION ${QUINTET_PACKAGE} COMPONENT development)

set(QUINTET_ARCHIVES ${libraries})
list(REMOVE_ITEM QUINTET_ARCHIVES quintet_quintet)
list(TRANSFORM QUINTET_ARCHIVES PREPEND -l)
list(JOIN QUINTET_ARCHIVES " " QUINTET_ARCHIVES)
if(TARGET quintet_cuda)
  set(QUINTET_CUDA_RUNTIME "-L${QUINTET_CUDA_ROOT}/lib64 -lcudart_static -lrt ")
endif()
string(REGEX REPLACE "[^/]+" ".." QUINTET_PREFIX_FROM_PC ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_file(cmake/quintet.pc.in quintet.pc @ONLY)
configure_file(cmake/libquintet.pc.in libquintet.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/quintet.pc ${CMAKE_BINARY_DIR}/libquintet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# `cpack -G DEB` in the build folder: quintet, which depends on the libraries that it is linked with, and quintet-dev.
set(CPACK_PACKAGE_NAME quintet)
set(CPACK_PACKAGE_VENDOR Quintet)
set(CPACK_PACKAGE_CONTACT "Quintet <quintet@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains, fine-tunes, evaluates and serves T5-family models")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME quintet)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS openmpi-bin)  # mpirun, for many ranks
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME quintet-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "quintet (= ${PROJECT_VERSION}), libfmt-dev, libcli11-dev, nlohmann-json3-dev, libdnnl-dev, libhwy-dev, libsentencepiece-dev, libprotobuf-dev, zlib1g-dev, libzstd-dev, libre2-dev, libicu-dev, libhdf5-dev, libopenmpi-dev, libboost-context-dev, libboost-dev, ${QUINTET_LINE_EDITING_PACKAGE}pkg-config")
include(CPack)
