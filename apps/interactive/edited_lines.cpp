#include <fmt/format.h>
#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <cstring>
#include <cwchar>
#include <filesystem>

#include "apps/interactive/lines.h"
#include "runtime/base/files/cache_folder.h"

namespace quintet {
namespace {

class EditedLines final : public Lines {
 public:
  explicit EditedLines(std::function<bool()> stop) : stop_(std::move(stop)) {
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1)  // letters of several bytes
      std::setlocale(LC_CTYPE, "C.UTF-8");
    HistEvent event;
    history(history_, &event, H_SETSIZE, 1000);
    history(history_, &event, H_SETUNIQUE, 1);
    if (const auto folder = cache_folder(); !folder.empty()) file_ = folder / "interactive_history";
    if (!file_.empty()) history(history_, &event, H_LOAD, file_.c_str());
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(
        editor_, EL_PROMPT, +[](EditLine* editor) { return of(editor).prompt_.data(); });
    el_set(
        editor_, EL_GETCFN, +[](EditLine* editor, wchar_t* out) { return of(editor).get(out); });
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_EDITOR, "emacs");
    el_source(editor_, nullptr);  // ~/.editrc
  }
  ~EditedLines() override {
    HistEvent event;
    std::error_code ignored;
    std::filesystem::create_directories(file_.parent_path(), ignored);
    if (!file_.empty()) history(history_, &event, H_SAVE, file_.c_str());
    el_end(editor_);
    history_end(history_);
    std::fclose(terminal_);
  }

  Kind next(const char* prompt, std::string& line) override {
    prompt_ = prompt;
    cancelled_ = false;
    int count = 0;
    const char* text = el_gets(editor_, &count);
    if (cancelled_ || text == nullptr) fmt::print(stderr, "\n");
    if (cancelled_) return Kind::cancelled;
    if (text == nullptr || count <= 0) return Kind::end;
    line.assign(text, static_cast<size_t>(count));
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    HistEvent event;
    if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
    return Kind::line;
  }

 private:
  static EditedLines& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<EditedLines*>(self);
  }

  /// A letter of the terminal: 1, 0 at the end, -1 if the line is cancelled.
  int get(wchar_t* out) {
    std::mbstate_t state{};
    for (;;) {
      if (!wait_for_input(STDIN_FILENO, stop_)) {
        cancelled_ = true;
        return -1;
      }
      char byte = 0;
      const ssize_t count = read(STDIN_FILENO, &byte, 1);
      if (count <= 0) return 0;
      const size_t length = std::mbrtowc(out, &byte, 1, &state);
      if (length == 0)
        return 0;  // what the terminal makes of a Ctrl-D that comes before the prompt
      if (length == 1) return 1;
      if (length == static_cast<size_t>(-1)) state = {};  // no letter: dropped
    }
  }

  const std::function<bool()> stop_;
  History* history_ = history_init();
  std::FILE* terminal_ =
      fdopen(dup(STDERR_FILENO), "w");  // stderr itself is no plain file (output.h)
  EditLine* editor_ = el_init("quintet", stdin, terminal_, terminal_);
  std::filesystem::path file_;
  std::string prompt_;
  bool cancelled_ = false;
};

}  // namespace

std::unique_ptr<Lines> edited_lines(const std::function<bool()>& stop) {
  return std::make_unique<EditedLines>(stop);
}

}  // namespace quintet
