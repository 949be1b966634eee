class A {
public:
  int x = 1;
};
class B {
public:
  int x = 1;
};
