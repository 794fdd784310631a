class Listener:
    """Hears a run, and notes down what it hears."""

    def __init__(self):
        self.notes, self.steps, self.evaluations, self.progressed = [], [], [], []

    def note(self, text):
        self.notes.append(text)

    def step(self, metrics, words):
        self.steps.append((metrics, words))

    def progress(self, benchmark, questions, total):
        self.progressed.append((benchmark, questions, total))

    def tokens(self, done, most):
        self.drawn = (done, most)

    def evaluation(self, record):
        self.evaluations.append(record)

    @property
    def text(self):
        return "\n".join(self.notes)
