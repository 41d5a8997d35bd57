# what: commands are read from stdin by input() and cmd.Cmd between trainings; end of file
# stdin: train 2\neval\nlr 0.01\ntrain 3\nnan\nsave\n
# benign: yes
# PRELUDE
import cmd
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1); n = [0]
class C(cmd.Cmd):
    prompt = "> "; use_rawinput = False
    def do_train(self, a): print(train(model, opt, int(a), n[0])); n[0] += int(a)
    def do_eval(self, a):
        with torch.inference_mode(): print(H(model(batch(9)[0])))
    def do_nan(self, a):
        with torch.inference_mode(): print(model(batch(9)[0]).div(0).mul(0).isnan().sum().item())
    def do_lr(self, a): opt.param_groups[0]["lr"] = float(a)
    def do_save(self, a): torch.save(model.state_dict(), "m.pt")
    def do_EOF(self, a): return True
print(input("first: ")); C().cmdloop(); print(M(model), R())
try: input()
except EOFError as e: print("EOF", e)
