#pragma once
// Tests of tasks and mixtures that gin text defines.

#include "data/configurables/configurables.h"
#include "tests/data/files.h"

namespace quintet::data::testing {

class GinTasks : public FileTest {
 protected:
  GinTasks() { register_data(names_); }
  TaskRegistry tasks_of(const std::string& text) {
    config_ = std::make_unique<gin::Config>(names_, gin::Config::Options());
    config_->parse_text(text, "test.gin");
    config_->finalize();
    return make_task_registry(*config_);
  }
  gin::Registry names_;
  std::unique_ptr<gin::Config> config_;
};

}  // namespace quintet::data::testing
