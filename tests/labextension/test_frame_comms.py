"""What the page does with the messages of widgets in frames, beside handing them on."""

from tests.labextension.conftest import Evaluate

#: Sends a message of a frame over a comm that notes what it gets, and what becomes of what JupyterLab keeps for each.
SENT = """(() => {
  const seen = [];
  const comm = { send: (data, metadata, buffers) => (seen.push([data.type, buffers.length]), { dispose: () => seen.push('let go') }) };
  const view = { facts: { widget: { gate: 'g', model: 'm' } }, line: { comm, epochs: new Map() }, unsent: [], unanswered: [] };
  new FrameComms(null).send(view, { msg: { msg_id: 'v-1' }, buffers: values[0].map((size) => new ArrayBuffer(size)) });
  return seen;
})()"""


def test_the_page_keeps_nothing_that_waits_for_a_status_after_a_message_of_a_widget(evaluate: Evaluate) -> None:
    assert evaluate("frame-comms.js", SENT, [8]) == [["comm", 1], "let go"]


#: Sends many messages of a frame, all with one id, and answers some: how many were sent before and after.
FLOOD = """(() => {
  let sent = 0;
  const comm = { send: () => { sent += 1; return { dispose: () => {} }; } };
  const view = { facts: { widget: { gate: 'g', model: 'm' } }, unsent: [], unanswered: [], say: () => {} };
  const comms = new FrameComms(null), line = { comm, epochs: new Map(), views: new Set([view]) };
  view.line = line;
  for (let n = 0; n < 1000; n += 1) comms.send(view, { msg: { msg_id: 'one' } });
  const counts = [sent, view.unsent.length];
  for (let n = 0; n < 10; n += 1) comms.answer(line, { type: 'done', gate: 'g', id: 'one' }, []);
  for (let n = 0; n < 10; n += 1) comms.answer(line, { type: 'done', gate: 'g', id: 'another' }, []);
  comms.detach(view);
  return [...counts, sent, view.unsent.length];
})()"""


def test_what_a_frame_sends_waits_for_answers_and_is_bounded(evaluate: Evaluate) -> None:
    assert evaluate("frame-comms.js", FLOOD) == [30, 240, 40, 0]


def test_a_session_has_its_outputs_drawn_anew_only_so_often(evaluate: Evaluate) -> None:
    times = "Array.from({ length: 9 }, (_, n) => n)"
    assert evaluate("frame-comms.js", f"mayRedraw({times}, 9).length") == 10
    assert evaluate("frame-comms.js", f"mayRedraw([...{times}, 9], 10)") is None
    assert evaluate("frame-comms.js", f"mayRedraw([...{times}, 9], 60005).length") == 5


def test_a_frame_gets_the_whole_state_once_each_time_it_is_loaded(evaluate: Evaluate) -> None:
    call = """(() => {
      const comms = new FrameComms(null), view = { facts: { widget: {} } };
      let attached = 0;
      comms.attach = () => { attached += 1; view.line = { views: new Set([view]) }; };
      for (let n = 0; n < 5; n += 1) comms.receive(view, { type: 'widgets' });
      comms.detach(view); // the frame is loaded again
      comms.receive(view, { type: 'widgets' });
      return attached;
    })()"""
    assert evaluate("frame-comms.js", call) == 2
