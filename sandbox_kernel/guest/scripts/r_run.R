# Runs one R cell in a jail: prints the values of its top-level expressions; an error names its line.
# Sourced with `cell`, the path of the cell, set in the same environment.

run_cell <- function(cell) {
  at <- 0L
  leave <- function(text) {
    message(text)
    quit(save = "no", status = 1)
  }
  report <- function(error) {
    lines <- at
    for (call in sys.calls()) {
      place <- attr(call, "srcref")
      if (!is.null(place) && identical(attr(place, "srcfile")$filename, cell)) lines <- c(lines, place[[1]])
    }
    call <- conditionCall(error)
    inside <- if (is.null(call)) "" else paste0(" in ", deparse(call)[[1]])
    places <- paste0("    at ", cell, ":", rev(unique(lines)), collapse = "\n")
    leave(paste0("Error", inside, " : ", conditionMessage(error), "\n", places))
  }
  parts <- tryCatch(parse(cell, keep.source = TRUE, encoding = "UTF-8"), error = function(e) leave(conditionMessage(e)))
  lines <- attr(parts, "srcref")
  withCallingHandlers(
    for (i in seq_along(parts)) {
      at <- lines[[i]][[1]]
      value <- withVisible(eval(parts[[i]], globalenv()))
      if (value$visible) print(value$value)
    },
    error = report
  )
}

options(keep.source = TRUE)
run_cell(cell)
