# quintet_case_table(VARIABLE folder...): writes that table, puts its path into VARIABLE.
function(quintet_case_table variable name)
  set(declarations "")
  set(calls "")
  foreach(folder ${ARGN})
    string(APPEND declarations "std::vector<OpCase> ${folder}_cases();\n")
    string(APPEND calls "  for (OpCase& c : ${folder}_cases()) cases.push_back(std::move(c));\n")
  endforeach()
  set(path ${CMAKE_CURRENT_BINARY_DIR}/${name}_table.cpp)
  file(CONFIGURE OUTPUT ${path} CONTENT
"// Generated from the list of case files by tests/case_table.cmake.
#include \"tests/ops/harness.h\"

namespace quintet::testing {

@declarations@
std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases;
@calls@  return cases;
}

}  // namespace quintet::testing
" @ONLY)
  set(${variable} ${path} PARENT_SCOPE)
endfunction()
