# cmake -DSOURCE=DIR -DFILE=commit.cpp -P: the commit of the source tree, with -dirty if files differ from it, or nothing
# where there is no git or no repository. The file is written when that changes, so that nothing else is built again.
set(commit "")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=9 --exclude=* OUTPUT_VARIABLE commit
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE ignored)
endif()
set(content "#include \"apps/process/version.h\"\nconst char* const quintet::kCommit = \"${commit}\";\n")
if(EXISTS ${FILE})
  file(READ ${FILE} before)
endif()
if(NOT "${before}" STREQUAL content)
  file(WRITE ${FILE} "${content}")
endif()
