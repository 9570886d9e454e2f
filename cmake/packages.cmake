# Read by cpack. Without dpkg-shlibdeps it would make, and not say so, a package that depends on nothing.
if(CPACK_GENERATOR STREQUAL DEB)
  foreach(program dpkg-shlibdeps file)
    find_program(QUINTET_HAS_${program} ${program})
    if(NOT QUINTET_HAS_${program})
      message(FATAL_ERROR "a Debian package takes ${program}: apt-get install dpkg-dev file")
    endif()
  endforeach()
endif()
