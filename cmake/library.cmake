# libquintet.so: the C interface (apps/library/quintet.h). It holds no protobuf, whose archive cannot go into a shared library
# (cmake/protobuf.cmake): reading a model and a task's data need one. So the engine stays in the program, and this starts it.
file(GLOB sources CONFIGURE_DEPENDS apps/library/*.cpp)
add_library(quintet_library SHARED ${sources})
target_link_libraries(quintet_library PRIVATE quintet_flags quintet_base Threads::Threads)
target_compile_definitions(quintet_library PRIVATE QUINTET_VERSION="${PROJECT_VERSION}")
target_compile_options(quintet_library PRIVATE $<$<CONFIG:Release>:-O1>)
set(exports ${CMAKE_SOURCE_DIR}/apps/library/exports.map)
target_link_options(quintet_library PRIVATE LINKER:--version-script=${exports} LINKER:-z,defs)
# The number grows with QUINTET_INTERFACE.
set_target_properties(quintet_library PROPERTIES OUTPUT_NAME quintet SOVERSION 1 LINK_DEPENDS ${exports})
